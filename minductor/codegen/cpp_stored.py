"""What stores of 16-bit floats need not convert.

Takes a kernel's body and the storages' dtypes; gives, by the id of an op, how it differs from the plain way. Refuses
nothing: where nothing is known, a store rounds the float32 that the kernel has computed.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expr import integer
>>> from minductor.ir.build import Builder
>>> from minductor.ir.nodes import Ref
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
from minductor.ir.held import is_held
from minductor.ir.nodes import Body, Load, Op, Round, Store

# a load whose bits a store writes; a rounding that changes nothing, or that stores do; a store that need not round
How: TypeAlias = Literal["bits", "same", "held"]


def stored_as(body: Body, dtypes: Mapping[str, DType]) -> dict[int, How]:
    """See above."""
    users: dict[int, list[Op]] = {}
    for op in body.ops:
        for position in {*op.args}:
            users.setdefault(position, []).append(op)

    def is_held_as(position: int, dtype: DType) -> bool:
        return is_held(position, body.ops.__getitem__, dtype, lambda name: dtypes[name])

    found: dict[int, How] = {}
    for position, asking in users.items():
        given = body.ops[position]
        stores = [(op, dtypes[op.attrs.ref.storage]) for op in asking if isinstance(op.attrs, Store)]
        is_exact = len(stores) > 0 and is_held_as(position, BF16)
        match given.attrs:
            case Load(ref) if dtypes[ref.storage] == F16 and any(dtype == F16 for _, dtype in stores):
                found[id(given)] = "bits"
            case Round(to) if is_held_as(given.args[0], to):
                found[id(given)] = "same"
            case Round(to) if (
                to in (BF16, F16) and len(stores) == len(asking) and all(dtype == to for _, dtype in stores)
            ):
                found[id(given)] = "same"
                is_exact = False
            case _:
                pass
        found.update((id(op), "held") for op, dtype in stores if dtype == BF16 and is_exact)
    return found
