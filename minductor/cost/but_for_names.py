"""What kernels that compute the same have in common, whatever the names of their storages.

Takes a kernel and the table of buffers. Gives a key that is equal for such kernels, with the names. Refuses (None) a
kernel with masks or checks: what they hold has names of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from minductor.ir.program.nodes import Atomic, Buffer, Check, Kernel, Load, Masked, Store


def but_for_names(kernel: Kernel, table: Mapping[str, Buffer]) -> tuple[object, list[str]] | None:
    """What decides the shape of a kernel but for the names of its storages, and these names.

    None if it has masks or checks: what they hold has names of its own.
    """
    names: dict[str, int] = {}
    facts: list[object] = []
    for op in kernel.body.ops:
        attrs: object = op.attrs
        if isinstance(attrs, (Load, Store, Atomic)):
            buffer = table[attrs.ref.storage]
            number = names.setdefault(attrs.ref.storage, len(names))
            attrs = type(attrs), number, attrs.index, buffer.dtype, buffer.size
        elif isinstance(attrs, (Masked, Check)):
            return None
        facts.append((op.name, op.args, op.dtype, op.axes, attrs))
    return (kernel.axes, tuple(facts)), list(names)
