"""Which conversions between 16-bit floats and float32 a kernel can omit.

Takes a kernel's body and the dtypes of its storages. Gives a word (`How`) for each operation that is written
differently, by the id of the operation. Refuses nothing: an operation without a word is written the plain way, in which
a store rounds the float32 value that the kernel computed.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import integer
>>> from minductor.ir.program.build import Builder
>>> from minductor.ir.program.nodes import Ref
>>> b = Builder()
>>> x = b.load(Ref("x", 0), integer(0), F32)
>>> stores = [b.store(Ref("y", 0), integer(0), b.op("neg", x))]
>>> stores += [b.store(Ref("z", 0), integer(0), b.round_to(b.op("exp", x), BF16))]
>>> body = b.build()
>>> how = stored_as(body, dict.fromkeys("xyz", BF16))
>>> [(op.name, how[id(op)]) for op in body.ops if id(op) in how]
[('store', 'held'), ('round_to', 'same')]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from minductor.core.dtypes import BF16, F16, DType
from minductor.ir.program.exact_in_dtype import is_exact_in_dtype
from minductor.ir.program.nodes import Body, Load, Masked, Op, Round, Store

# "bits": a load (masked or not) whose bits a store writes unchanged, and that store. "same": a rounding that changes
# nothing, or that the stores repeat. "held": a store of a value that is already rounded.
How: TypeAlias = Literal["bits", "same", "held"]


def stored_as(body: Body, dtypes: Mapping[str, DType]) -> dict[int, How]:
    """The conversions that can be omitted, by the id of the operation; `How` explains the words."""

    def is_held_as(position: int, dtype: DType) -> bool:
        return is_exact_in_dtype(position, body.ops.__getitem__, dtype, lambda name: dtypes[name])

    found: dict[int, How] = {}
    users: dict[int, list[Op]] = {}
    same: dict[int, int] = {}  # a rounding that changes nothing -> what it rounds
    for position, op in enumerate(body.ops):
        given = [same.get(a, a) for a in op.args]
        if isinstance(op.attrs, Round) and is_held_as(given[0], op.attrs.dtype):
            same[position], found[id(op)] = given[0], "same"
            continue
        for a in {*given}:
            users.setdefault(a, []).append(op)
    for position, asking in users.items():
        op = body.ops[position]
        stores = [(user, dtypes[user.attrs.ref.storage]) for user in asking if isinstance(user.attrs, Store)]
        to = op.attrs.dtype if isinstance(op.attrs, Round) else None
        if _is_half(op, dtypes):
            found.update((id(each), "bits") for store, dtype in stores if dtype == F16 for each in (op, store))
        elif to in (BF16, F16) and len(stores) == len(asking) and all(dtype == to for _, dtype in stores):
            found[id(op)] = "same"
        elif stores and is_held_as(position, BF16):
            found.update((id(store), "held") for store, dtype in stores if dtype == BF16)
    return found


def _is_half(op: Op, dtypes: Mapping[str, DType]) -> bool:
    """Whether a value is an element of a float16 storage, or 0 where a mask forbids the load."""
    match op.attrs:
        case Load(ref):
            return dtypes[ref.storage] == F16
        case Masked(Body(ops=(only,)), other):
            return (
                repr(other) in ("0", "0.0")
                and isinstance(only.attrs, Load)
                and not only.args
                and _is_half(only, dtypes)
            )
        case _:
            return False
