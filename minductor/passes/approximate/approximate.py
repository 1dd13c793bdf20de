"""Takes fast approximations of functions on a GPU where results are stored with so few bits that none shows.

Takes a Program whose kernels have schedules. Gives it with `fast_exp`, `fast_sigmoid`, `fast_div` and
`fast_online_softmax` in place of the exact ones whose values reach nothing but 16-bit floats, `fast_erf` and
`fast_tanh` where a constant is added to them as well, as in gelu; the program itself if there are none. Refuses
nothing: a value that is stored with more bits, compared, cast or used as an index stays exact, and so does all on a
CPU, whose vector functions are exact at the same speed.

A GPU computes exp2 by one instruction. `exp(x)` by that is off by at most 2**-17 of its value, since x * log2(e) is
rounded; the last bit of a float16 is 2**-10. The exact function takes three times as many instructions. Values are
followed backwards: from the stores through the operations that keep a small relative error small, and through buffers
between kernels, such as the sums of the parts of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from minductor.core.dtypes import F32, DType
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import (
    Body,
    Buffer,
    Constant,
    Extern,
    Kernel,
    Load,
    Masked,
    Node,
    Op,
    Program,
    Project,
    Reduce,
    Round,
    Store,
    Variant,
    reads,
    views_of,
)
from minductor.target import Env

FAST: Mapping[str, str] = {"exp": "fast_exp", "sigmoid": "fast_sigmoid", "div": "fast_div"}
# Their errors are small beside 1, and not beside values near 0.
FAST_BESIDE_ONE: Mapping[str, str] = {"erf": "fast_erf", "tanh": "fast_tanh"}
LEAST_ADDED = 0.5
# Operations whose results are as coarse as their operands.
_NAMES = "add sub mul div neg abs square maximum minimum where fma relu sqrt rsqrt reciprocal exp log sigmoid tanh erf"
_PASSING = frozenset(_NAMES.split())
_COMBINES = frozenset(("sum", "max", "min", "online_softmax"))


def approximate(program: Program, env: Env) -> Program:
    """The program with fast functions where no result shows the difference."""
    if not env.target.is_gpu:
        return program
    flow = _Flow(program, env.target.lacks)
    nodes = tuple(reversed([flow.visit(node) for node in reversed(program.nodes)]))
    is_changed = any(a is not b for a, b in zip(nodes, program.nodes, strict=True))
    return replace(program, nodes=nodes) if is_changed else program


class _Flow:
    """Follows values from their readers back to their makers. `wide`: the storages that some reader needs exactly.

    `lacks`: the operators that the target has no form of.
    """

    def __init__(self, program: Program, lacks: Set[str]) -> None:
        self.lacks = lacks
        self.table: Mapping[str, Buffer] = program.real_table()
        kept = {view.ref.storage for view in views_of(program.outputs)}
        own = {buffer.name for buffer in program.buffers if buffer.kind == "local"}
        self.wide = {name for name in self.table if name in kept or name not in own}

    def visit(self, node: Node) -> Node:
        """The node with fast functions; what it needs exactly is wide from here on."""
        if isinstance(node, Kernel):
            return self.kernel(node)
        self.wide.update(ref.storage for ref in reads(node))
        return node

    def kernel(self, node: Kernel) -> Kernel:
        """A kernel and its variants with fast functions."""
        variants = tuple(self.variant(variant) for variant in node.variants)
        body = self.body(node.body, set())
        is_same = body is node.body and all(a is b for a, b in zip(variants, node.variants, strict=True))
        return node if is_same else replace(node, body=body, variants=variants)

    def variant(self, variant: Variant) -> Variant:
        """A variant with fast functions. Its own buffers lie between its kernels."""
        self.table = {**self.table, **{buffer.name: buffer for buffer in variant.buffers}}
        nodes: list[Kernel | Extern] = []
        for node in reversed(variant.nodes):
            self.wide.update(ref.storage for ref in reads(node) if isinstance(node, Extern))
            nodes.insert(0, self.kernel(node) if isinstance(node, Kernel) else node)
        is_same = all(a is b for a, b in zip(nodes, variant.nodes, strict=True))
        return variant if is_same else replace(variant, nodes=tuple(nodes))

    def body(self, body: Body, wide: set[int]) -> Body:
        """A body with fast functions. `wide`: the positions whose values are needed exactly; it is completed."""
        ops = list(body.ops)
        for position in reversed(range(len(ops))):
            op = ops[position]
            if position in wide or not self.is_passing(op):
                wide.update(op.args)
            if isinstance(op.attrs, Load) and position in wide:
                self.wide.add(op.attrs.ref.storage)
            if isinstance(op.attrs, Masked):
                inner = self.body(op.attrs.body, set(op.attrs.body.results) if position in wide else set())
                if inner is not op.attrs.body:
                    ops[position] = replace(op, attrs=replace(op.attrs, body=inner))
            elif position not in wide and op.dtype == F32:
                ops[position] = _fast(op, self.lacks, is_beside_one=_is_beside_one(position, body))
        return body if all(a is b for a, b in zip(ops, body.ops, strict=True)) else replace(body, ops=tuple(ops))

    def is_passing(self, op: Op) -> bool:
        """Whether an op needs its operands no more exactly than its own result is needed."""
        match op.attrs:
            case None:
                return op.name in _PASSING
            case Round(dtype=dtype):
                return _is_short(dtype)
            case Store(ref=ref):
                return ref.storage not in self.wide or _is_short(self.table[ref.storage].dtype)
            case Reduce(combine=how):
                return how.name in _COMBINES
            case Project():
                return True
            case _:
                return False


def _is_beside_one(position: int, body: Body) -> bool:
    """Whether the value of an op is used for sums with constants alone, beside which it may be small."""
    if body.ops[position].name not in FAST_BESIDE_ONE or position in body.results:
        return False
    users = [op for op in body.ops if position in op.args]
    return all(op.name in ("add", "sub") and any(_is_large(body.ops[a]) for a in op.args) for op in users)


def _is_large(op: Op) -> bool:
    """Whether an op is a constant beside which an error of 2**-20 is none of 16 bits."""
    return isinstance(op.attrs, Constant) and isinstance(op.attrs.value, float) and abs(op.attrs.value) >= LEAST_ADDED


def _fast(op: Op, lacks: Set[str], *, is_beside_one: bool) -> Op:
    """The fast form of an op; the op itself if it has none, or one that the target lacks."""
    if op.attrs is None:
        fast = FAST.get(op.name) or (FAST_BESIDE_ONE[op.name] if is_beside_one else op.name)
        return op if fast == op.name or fast in lacks else replace(op, name=fast)
    if isinstance(op.attrs, Reduce) and op.attrs.combine.name == "online_softmax" and FAST["exp"] not in lacks:
        return replace(op, attrs=replace(op.attrs, combine=combine("fast_online_softmax", F32)))
    return op


def _is_short(dtype: DType) -> bool:
    """Whether values are floats of at most 16 bits."""
    return dtype.kind == "float" and dtype.itemsize <= 2
