"""The stage, and its step that puts kernels that do the same to different tensors into one launch.

Takes a Program whose kernels have schedules. Gives one in which kernels with equal operators, none of which depends on
another one of them, are one kernel: its parts stand one behind the other, each with axes and loops of its own. Refuses
(leaves as they are) kernels that can raise an error, scatters, scans, matrix products and kernels of many axes; and,
with a `FusionRefusal`, kernels beyond the limits below and those for which one launch saves too little. What shares a
launch keeps no variants.

The step of an optimiser is the case that pays: the same few operators for each parameter. A launch for each small
parameter would cost more than the work. Large ones stay apart: their time is that of the memory. `launch_seconds.py`
says which; the limits below are facts that are no seconds of the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from minductor.analysis.acyclic import AcyclicOrder
from minductor.analysis.dependencies import dependencies
from minductor.analysis.domain import buffer_bytes
from minductor.cost.launch_seconds import Launch, LaunchPrices
from minductor.ir.program.loops import loops
from minductor.ir.program.nodes import (
    Assert,
    Atomic,
    Check,
    FusionRefusal,
    Kernel,
    MergedKernel,
    Node,
    Program,
    Scan,
    all_ops,
    defined_symbols,
    reads,
    views_of,
    writes,
)
from minductor.ir.program.signature import signature
from minductor.ir.program.variants import is_base_default, without_variants
from minductor.passes.bundle.finish import finish
from minductor.passes.bundle.one_kernel import one_kernel
from minductor.passes.bundle.share_out import share_out
from minductor.target import Env, Target

MAX_KERNELS = 64  # of one bundle: a program on a GPU compares its number with those of the parts, one after the other
MAX_GPU_OPS = 1024  # of a bundle for a GPU: Triton's compile time grows faster than the text
MAX_CPU_AXES, MAX_GPU_AXES = 2, 3  # of a kernel; weights that are laid out anew for convolutions have three on a GPU
MAX_PARAMETERS = 256  # tensors and numbers that one launch takes: launchers hold so many (`load.py: MAX_ARGUMENTS`)
MAX_OPEN_BUNDLES = 4  # bundles of equal operators, latest first, that a kernel is tried with: time of this stage
# Of a bundle's intermediate results, which are all live at the same time: memory, not time. So many bytes at least, and
# on a GPU a part of what the program is given: the gradients of weights, beside all that a forward has saved. On a CPU
# results that are read at once are still in the caches.
MAX_LIVE_BYTES, MAX_LIVE_SHARE = 1 << 20, 1 / 64

# Kernels with equal keys may be one bundle.
Key: TypeAlias = tuple[object, ...]


def bundle(program: Program, env: Env) -> Program:
    """The program with bundled kernels, those that the last program of another one finishes, and smaller tiles."""
    return share_out(finish(bundle_equal(program, env), env), env)


def bundle_equal(program: Program, env: Env) -> Program:
    """The program with bundled kernels; the program itself if there are none, fusion is off, or it has two devices."""
    is_split = len({buffer.device for buffer in program.buffers}) > 1
    if not env.options.fuse or is_split:
        return program
    keys = [_bundle_key(node, is_gpu=env.target.is_gpu) for node in program.nodes]
    counts = Counter(key for key in keys if key)
    if max(counts.values(), default=1) == 1:
        return program
    groups = _Groups(program, [key if key and counts[key] > 1 else None for key in keys], env.target)
    for number in range(len(keys)):
        groups.add(number)
    members, order = groups.members, groups.order
    notes = (*program.notes, *groups.notes)
    if all(len(group) == 1 for group in members.values()):
        return replace(program, notes=notes) if groups.notes else program
    ranked = sorted(members, key=lambda first: order.rank[first])
    nodes = [_together([program.nodes[n] for n in members[first]]) for first in ranked]
    gone = [
        MergedKernel("bundle", _name(program.nodes[n]), _name(program.nodes[first]), "they do the same to other data")
        for first in ranked
        for n in members[first][1:]
    ]
    return replace(program, nodes=tuple(nodes), notes=(*notes, *gone))


def _together(nodes: Sequence[Node]) -> Node:
    """The nodes of a group as one."""
    return nodes[0] if len(nodes) == 1 else one_kernel([without_variants(n) for n in nodes if isinstance(n, Kernel)])


def _name(node: Node) -> str:
    assert isinstance(node, Kernel)
    return node.name


class _Bundle(NamedTuple):
    """What one launch takes: kernels, tensors and numbers, bytes of intermediate results, and seconds."""

    kernels: int
    parameters: int
    local_bytes: int
    launch: Launch


class _Groups:
    """Finds bundles. `members`: the nodes of each, by the one that ranks first in `order`; other nodes are alone."""

    def __init__(self, program: Program, keys: Sequence[Key | None], target: Target) -> None:
        self.nodes, self.keys, self.is_gpu = program.nodes, keys, target.is_gpu
        self.edges = dict.fromkeys((e.source, e.target) for e in dependencies(program))
        self.order = AcyclicOrder(len(self.nodes), self.edges)
        self.prices = LaunchPrices(program.real_table(), target, program.hints)
        given = sum(buffer_bytes(b, program.hints) for b in program.buffers if b.kind == "input")
        self.most_bytes = max(MAX_LIVE_BYTES, int(given * MAX_LIVE_SHARE) if target.is_gpu else 0)
        kept = {view.ref.storage for view in views_of(program.outputs)}
        own = (b for b in program.buffers if b.kind == "local" and b.name not in kept)
        self.local = {b.name: buffer_bytes(b, program.hints) for b in own}
        for made in ({ref.storage for ref in writes(node)} for node in self.nodes if isinstance(node, Kernel)):
            if len(made) > 1:  # the results of one kernel are alive at the same time anyway
                self.local.update(dict.fromkeys(made.intersection(self.local), 0))
        self.has_sizes = bool(program.symbols) or any(map(defined_symbols, program.nodes))
        self.members: dict[int, list[int]] = {}
        self.bundles: dict[int, _Bundle] = {}
        self.latest: dict[Key, list[int]] = {}  # by key the bundles, as the node that ranks first
        self.notes: list[FusionRefusal] = []

    def add(self, number: int) -> None:
        """Puts a node into the latest bundle that may take it, or begins one."""
        key = self.keys[number]
        self.members[number] = [number]
        if key is None:
            return
        mine, opened = self.bundle_of(number), self.latest.setdefault(key, [])
        refusal: FusionRefusal | None = None
        for first in reversed(opened[-MAX_OPEN_BUNDLES:]):
            if self.must_wait(first, number):
                continue
            whole = self.together(self.bundles[first], mine)
            reason, figures = self.refusal(key, self.bundles[first], mine, whole)
            if not reason:
                opened[opened.index(first)] = self.merge(first, number, whole)
                return
            if refusal is None:
                one, other = _name(self.nodes[first]), _name(self.nodes[number])
                refusal = FusionRefusal("bundle", one, other, reason, figures)
        opened.append(number)
        self.bundles[number] = mine
        if refusal is not None:
            self.notes.append(refusal)

    def must_wait(self, first: int, number: int) -> bool:
        """Whether a node depends on one of a bundle, or one of the bundle on the node."""
        if any((member, number) in self.edges for member in self.members[first]):
            return True
        low, high = sorted((first, number), key=lambda n: self.order.rank[n])
        return self.order.node_between(low, high) is not None

    def refusal(self, key: Key, one: _Bundle, other: _Bundle, whole: _Bundle) -> tuple[str, str]:
        """Why two bundles are not one, `whole`, and the seconds where they decide; two empty texts if they are."""
        most = min(MAX_KERNELS, MAX_GPU_OPS // len(key)) if self.is_gpu else MAX_KERNELS
        if whole.kernels > most:
            return f"one launch has at most {most} such kernels", ""
        if whole.parameters > MAX_PARAMETERS:
            return f"one launch takes at most {MAX_PARAMETERS} tensors and numbers", ""
        if whole.local_bytes > self.most_bytes:
            return f"one launch keeps at most {self.most_bytes} bytes of intermediate results alive", ""
        slower = self.prices.too_little(one.launch, other.launch, whole.launch)
        return ("", "") if slower is None else ("one launch saves too little", slower.figures("together", "apart"))

    def merge(self, first: int, number: int, whole: _Bundle) -> int:
        """Puts a node into a bundle, which becomes `whole`; gives the node of it that ranks first now."""
        low, high = sorted((first, number), key=lambda n: self.order.rank[n])
        self.order.merge(low, high)
        members = [*self.members[first], number]
        del self.members[high], self.bundles[first]
        self.members[low], self.bundles[low] = members, whole
        return low

    def together(self, one: _Bundle, other: _Bundle) -> _Bundle:
        """The bundle of the kernels of both."""
        return _Bundle(
            one.kernels + other.kernels,
            one.parameters + other.parameters,
            one.local_bytes + other.local_bytes,
            self.prices.together(one.launch, other.launch),
        )

    def bundle_of(self, number: int) -> _Bundle:
        """A bundle of one kernel."""
        kernel = self.nodes[number]
        assert isinstance(kernel, Kernel)
        storages = {ref.storage for ref in (*reads(kernel), *writes(kernel))}
        sizes = signature(kernel).sizes if self.has_sizes else ()
        local_bytes = sum(self.local.get(name, 0) for name in storages)
        return _Bundle(1, len(storages) + len(sizes), local_bytes, self.prices.launch(kernel))


def _bundle_key(node: Node, *, is_gpu: bool) -> Key | None:
    """The operators of a kernel that may be part of a bundle; None for any other node.

    For a GPU the blocks of its loops as well, since all programs of a launch have blocks of the same sizes.
    """
    if not isinstance(node, Kernel) or node.schedule is None or node.schedule.dots:
        return None
    if len(node.axes) > (MAX_GPU_AXES if is_gpu else MAX_CPU_AXES) or not is_base_default(node):
        return None
    ops = tuple(all_ops(node.body))
    if any(isinstance(op.attrs, Atomic | Check | Assert | Scan) for op in ops):
        return None
    tile = tuple((loop.kind, loop.block) for loop in loops(node.schedule.steps)) if is_gpu else ()
    return (*((op.name, op.dtype) for op in ops), *tile, *(without_variants(node).choices if is_gpu else ()))
