"""Complex tensors in memory, and as pairs of real ones.

Takes the lowering and a value. Gives its parts, which kernels load; or the value in memory of torch's kind, real and
imaginary parts side by side, which is what calls and callers are given. Refuses nothing.

A complex value of the environment is a View, of what was given or called or of real memory that is read in pairs; or a
ComplexPair, of what kernels computed.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.core.dtypes import complex_parts
from minductor.frontend.capture.size_formulas import is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import ComplexPair, Value
from minductor.ir.program.nodes import Token, View


def real_and_imaginary(ctx: Lowering, x: View | ComplexPair) -> ComplexPair:
    """Its real and imaginary parts, wherever they are."""
    if isinstance(x, ComplexPair):
        return x
    return deinterleaved(_resolved_conjugates(ctx, x) if x.ref.storage in ctx.state.conjugates else x)


def deinterleaved(x: View) -> ComplexPair:
    """The parts of complex numbers in memory of torch's kind, as kernels address them."""
    stride = tuple([2 * s for s in x.stride])
    re = View(x.ref, complex_parts(x.dtype), x.size, stride, 2 * x.offset)
    return ComplexPair(re, replace(re, offset=re.offset + 1))


def _resolved_conjugates(ctx: Lowering, x: View) -> View:
    """A copy made by torch, which finds at the call whether the memory has the conjugates."""
    copies = ctx.state.complex_copies
    if x not in copies:
        copies[x] = ctx.buffer(x.dtype, x.size)
        kwargs = {"memory_format": Token("memory_format", "contiguous_format")}
        ctx.add_extern("aten.clone.default", (x,), kwargs, (copies[x],), "its memory may have the conjugates")
    return copies[x]


def is_complex_memory(ctx: Lowering, x: View) -> bool:
    return ctx.buffer_of(x).dtype.kind == "complex"


def materialize(ctx: Lowering, value: Value) -> Value:
    """The value with its tensors in memory of their own kind: complex ones of parts, and parts of complex ones."""
    match value:
        case ComplexPair(re):
            return _interleaved(ctx, value, replace(re, dtype=value.dtype))
        case View(dtype=dtype) if (dtype.kind == "complex") != is_complex_memory(ctx, value):
            return _interleaved(ctx, value, value) if dtype.kind == "complex" else _copied_part(ctx, value)
        case tuple():
            return tuple([materialize(ctx, item) for item in value])
        case _:
            return value


def _copied_part(ctx: Lowering, part: View) -> View:
    loop = KernelBuilder(part.size)
    return ctx.store(loop, ctx.buffer(part.dtype, part.size), loop.coords, loop.load(part))


def _interleaved(ctx: Lowering, value: View | ComplexPair, like: View) -> View:
    """Both parts stored in one buffer, made once; one that a call has written over since does not count."""
    found = ctx.state.complex_copies.get(value)
    if found is not None and ctx.state.versions[found.ref.storage] == found.ref.version:
        return found
    out, given = ctx.buffer(like.dtype, like.size, like.stride), real_and_imaginary(ctx, value)
    if any(is_zero(n) for n in like.size):
        return ctx.uninitialised(out)
    loop = KernelBuilder(out.size)
    ctx.store(loop, deinterleaved(out).re, loop.coords, loop.load(given.re))
    out, loop = ctx.next_version(out), KernelBuilder(out.size)
    ctx.store(loop, deinterleaved(out).im, loop.coords, loop.load(given.im))
    ctx.state.complex_copies[value] = out
    return out
