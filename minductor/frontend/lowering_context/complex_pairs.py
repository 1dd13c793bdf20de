"""Complex tensors as pairs of real tensors, which kernels compute with, and as torch stores them.

Takes the lowering and a value. Gives its real and imaginary parts, which kernels load; or the value interleaved (each
imaginary part behind its real part, as torch stores complex numbers), which calls and the caller need. Refuses nothing.

A complex value is a `ComplexPair` if kernels computed it. It is a `View` if it is an input or the result of a call, or
if it is real memory that `view_as_complex` reads.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.core.dtypes import complex_parts
from minductor.frontend.capture.size_formulas import is_zero
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import ComplexPair, Value
from minductor.ir.program.nodes import Token, View


def real_and_imaginary(ctx: Lowering, x: View | ComplexPair) -> ComplexPair:
    """The real and imaginary parts of a complex tensor, as views; interleaved memory is not copied."""
    if isinstance(x, ComplexPair):
        return x
    return deinterleaved(_resolved_conjugates(ctx, x) if x.ref.storage in ctx.state.conjugates else x)


def deinterleaved(x: View) -> ComplexPair:
    """The real and imaginary parts of an interleaved complex tensor, as real views of stride 2 of the same memory."""
    stride = tuple([2 * s for s in x.stride])
    re = View(x.ref, complex_parts(x.dtype), x.size, stride, 2 * x.offset)
    return ComplexPair(re, replace(re, offset=re.offset + 1))


def _resolved_conjugates(ctx: Lowering, x: View) -> View:
    """A copy that torch makes: only the call knows whether the memory holds the numbers or their conjugates."""
    copies = ctx.state.complex_copies
    if x not in copies:
        copies[x] = ctx.buffer(x.dtype, x.size)
        kwargs = {"memory_format": Token("memory_format", "contiguous_format")}
        ctx.add_extern("aten.clone.default", (x,), kwargs, (copies[x],), "its memory may hold conjugates")
    return copies[x]


def is_complex_memory(ctx: Lowering, x: View) -> bool:
    """Whether the storage of a view was allocated for complex numbers, whatever the dtype of the view."""
    return ctx.buffer_of(x).dtype.kind == "complex"


def materialize(ctx: Lowering, value: Value) -> Value:
    """The value as calls and the caller need it: each tensor in a storage of its own dtype.

    A `ComplexPair` is interleaved. A view whose dtype is complex in real memory, or real in complex memory, is copied.
    """
    match value:
        case ComplexPair(re):
            return _interleaved(ctx, value, replace(re, dtype=value.dtype))
        case View(dtype=dtype) if (dtype.kind == "complex") != is_complex_memory(ctx, value):
            return _interleaved(ctx, value, value) if dtype.kind == "complex" else ctx.copy_of(value)
        case tuple():
            return tuple([materialize(ctx, item) for item in value])
        case _:
            return value


def _interleaved(ctx: Lowering, value: View | ComplexPair, like: View) -> View:
    """The value in a complex buffer with the layout of `like`; made once, and again after a write to that buffer."""
    found = ctx.state.complex_copies.get(value)
    if found is not None and ctx.state.versions[found.ref.storage] == found.ref.version:
        return found
    out, given = ctx.buffer(like.dtype, like.size, like.stride), real_and_imaginary(ctx, value)
    if any(is_zero(n) for n in like.size):
        return ctx.uninitialised(out)
    ctx.fill(deinterleaved(out).re, lambda loop: loop.load(given.re))
    out = ctx.next_version(out)
    ctx.fill(deinterleaved(out).im, lambda loop: loop.load(given.im))
    ctx.state.complex_copies[value] = out
    return out
