"""Makes several kernels of one whose reductions and scans would leave most of the machine idle.

Takes a Program. Gives it with the pieces of each kernel that is faster cut than whole, with the buffers between these
pieces, and with a note for each cut, and for each kernel that was weighed and stays whole; the same object if nothing
is cut. Refuses nothing: a kernel that cannot be cut stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from minductor.analysis.both_ways import both_ways, reduced_groups
from minductor.cost.kernel_seconds import Prices, fastest, microseconds
from minductor.cost.shape import Shape
from minductor.ir.program.nodes import Body, Buffer, Kernel, Node, NodeNote, Program, Scan
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.rewriting.online import online
from minductor.passes.rewriting.prune import prune_body
from minductor.passes.split.pieces import Pieces, cut_kernel
from minductor.passes.split.wanted_cut import Cut, possible_cuts
from minductor.passes.split.welford import welford
from minductor.target import Env

LEAST = 2  # launches of the pieces of a kernel, at least
WHOLE = "whole"  # the name of a kernel that is not cut, beside the names of its cuts


def split(program: Program, env: Env) -> Program:
    """The program with the long reductions and scans of its kernels in parts."""
    splitter = _Splitter(program, env)
    nodes: list[Node] = []
    buffers: list[Buffer] = []
    for node in program.nodes:
        pieces = splitter.pieces(node) if isinstance(node, Kernel) else None
        nodes += (node,) if pieces is None else pieces.kernels
        buffers += () if pieces is None else pieces.buffers
    if not splitter.notes:
        return program
    notes = (*program.notes, *splitter.notes)
    return replace(program, nodes=tuple(nodes), buffers=(*program.buffers, *buffers), notes=notes)


class _Way(NamedTuple):
    """One way to cut a kernel: the number of its form (`_Splitter.forms`), and of its cut."""

    form: int
    cut: int


class _Choice(NamedTuple):
    """The way that is taken, None if the kernel stays whole; and figures for the user."""

    way: _Way | None
    figures: str


class _Splitter:
    """Cuts the kernels of one program. `notes`: what it decided."""

    def __init__(self, program: Program, env: Env) -> None:
        self.env, self.hints = env, program.hints
        self.table = dict(program.real_table())
        self.prices = Prices(self.table, env.target, program.hints, may_cut=False)
        self.notes: list[NodeNote] = []
        self.known: dict[tuple[Shape, tuple[Cut, ...]], _Choice] = {}

    def pieces(self, node: Kernel) -> Pieces | None:
        """The pieces of a kernel; None if it stays whole."""
        kernel = self.simplified(node)
        if kernel is None:
            return None
        shape = self.prices.shape(kernel)
        if not all(shape.extents):
            return None
        cuts = possible_cuts(kernel, self.prices.sharers(shape), self.hints)
        if not cuts:
            return None
        nameless = shape._replace(touches=tuple(touch._replace(storage="") for touch in shape.touches))
        key = nameless, tuple(cuts)
        forms = self.forms(kernel)
        if key not in self.known:
            self.known[key] = self.choice(forms, shape, cuts)
        way, figures = self.known[key]
        made = None if way is None else cut_kernel(forms[way.form], cuts[way.cut], self.table)
        if made is not None and way is not None:
            parts = cuts[way.cut].parts(kernel, self.hints)
            text = f"{_rows(shape)} are too few for the machine, so each is cut in {parts} parts"
            self.notes.append(NodeNote("split", made.kernels[0].name, text, figures))
        elif figures:
            text = f"{_rows(shape)} stay whole: in parts they would take longer"
            self.notes.append(NodeNote("split", node.name, text, figures))
        return made

    def simplified(self, kernel: Kernel) -> Kernel | None:
        """The kernel without dead operations and with merged axes; None if there is nothing to cut.

        A reduction stays whole on a CPU, where threads share the parts of a row within one kernel.
        """
        if not (has_scan(kernel.body) or (self.env.target.is_gpu and reduced_groups(kernel.body))):
            return None
        return merge_kernel_axes(replace(kernel, body=prune_body(kernel.body)))

    def choice(self, forms: Sequence[Kernel], shape: Shape, cuts: Sequence[Cut]) -> _Choice:
        """The fastest way to cut a kernel, given its forms, if it is faster than the whole kernel, given its shape."""
        (whole,) = self.prices.seconds([[shape]])
        if max(whole) <= LEAST * self.prices.launch:
            return _Choice(None, "")
        ways: dict[str, _Way] = {}
        shapes: dict[str, list[Shape]] = {WHOLE: [shape]}
        for way in (_Way(form, cut) for form in range(len(forms)) for cut in range(len(cuts))):
            made = cut_kernel(forms[way.form], cuts[way.cut], self.table)
            if made is not None:
                self.table.update((buffer.name, buffer) for buffer in made.buffers)
                name = f"cut {way.cut} of form {way.form}"
                ways[name], shapes[name] = way, [self.prices.shape(piece) for piece in made.kernels]
        prices = dict(zip(shapes, self.prices.seconds(list(shapes.values())), strict=True))
        taken = fastest(prices)
        others = {name: each for name, each in prices.items() if name != WHOLE}
        if not others:
            return _Choice(None, "")
        best = fastest(others) if taken == WHOLE else taken
        parts = cuts[ways[best].cut].parts(forms[0], self.hints)
        slower, faster = (best, WHOLE) if taken == WHOLE else (WHOLE, best)
        at = max(range(len(prices[best])), key=lambda n: prices[slower][n] / prices[faster][n])
        figures = f"{microseconds(prices[WHOLE][at])} us whole, {microseconds(prices[best][at])} us in {parts} parts"
        return _Choice(ways.get(taken), figures)

    def forms(self, kernel: Kernel) -> list[Kernel]:
        """The forms in which a kernel may be cut: with its passes over a row made one where that can be, and as it is.

        The statistics of one pass take more operations, and one reading less of the rows.
        """
        if not self.env.target.is_gpu or both_ways(kernel.body, kernel.axes) is not None:
            return [kernel]
        merged = welford(online(kernel, [axis.name for axis in kernel.axes]))
        return [kernel] if merged is kernel else [merged, kernel]


def has_scan(body: Body) -> bool:
    """Whether a body scans a row."""
    return any(isinstance(op.attrs, Scan) for op in body.ops)


def _rows(shape: Shape) -> str:
    """The rows of a kernel that reduces or scans them, as text."""
    return f"{shape.points(shape.every & ~shape.joined)} rows of {shape.points(shape.joined)} elements"
