"""Estimates what the two layouts of images cost a convolution, for the choice between them.

Takes a convolution of an ATen graph, or the gradient of one. Gives the seconds that it takes longer than the best form
of it, with contiguous images and with channels-last ones; and the seconds of a copy from one layout to the other.
Refuses nothing.

Libraries compute a convolution in a layout of their own and bring operands and results to it. The layouts differ by the
seconds of these copies. oneDNN brings contiguous images and unpacked weights to blocks of channels; it takes packed
weights and channels-last images as they are. cuDNN's kernels for matrix units take channels-last images; its kernels
for float32 without TF32 are faster on contiguous ones.

The rates were fitted to single convolutions of image models: by oneDNN on two cores, by cuDNN on an H200. Those of
gradients and of group norms on a CPU are of single calls on a Zen 5 (`benchmarks/training.md`); those of the gradients
of depthwise convolutions on a GPU are of a training step of MobileNetV3. Other gradients are priced by the copies of a
convolution: that of the images makes as many, and so does that of the weights. A size that changes from call to call
counts as STAND_IN, since the bits of a result must not depend on the sizes of the first call.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.rewrite_row import Site
from minductor.target import NOMINAL

STAND_IN = 32  # counts for a size that is no number

# CPU, bytes or operations a second
_IMAGE_RATE = 25e9  # images that oneDNN brings to its blocks and back
_WEIGHT_RATE = 11e9  # weights that it brings to its blocks, with contiguous images
_WEIGHT_RATE_LAST = 4e9  # the same with channels-last images, for which the kernel wants other blocks
_CALL = 3e-5  # seconds more for a call that brings anything to blocks
_COPY_RATE = 1.2e10  # a copy of ours from one layout to the other, alone or as part of a kernel
_LARGE_DEPTHWISE_RATE = 3e10  # multiply-adds a second that are lost by large depthwise windows on channels-last images
_FEW_OUTPUTS_RATE = 2.5e9  # bytes of images that a 1x1 convolution with few results reads, channels-last
_HEAD_GRADIENT_RATE = 3e10  # the same for each gradient of such a convolution
_WIDE_DEPTHWISE_RATE = 3e9  # multiply-adds a second that the gradient of a wide depthwise weight loses, contiguous
_GROUP_NORM_PIXEL = 3e-9  # seconds more for the channels of a group at a pixel, channels-last
_GROUP_NORM_GRADIENT_PIXEL = 6e-9  # the same for the gradient of a group norm
FULL_PIXEL = 16  # channels of a group, from which a group norm takes channels-last images as fast as contiguous ones
SHARED_WEIGHT = 16 * 1024  # bytes of a weight, from which one copy for a convolution and its gradient pays
WIDE_WINDOW = 25  # elements of a window, from which oneDNN's contiguous gradients of depthwise weights are slow
LARGE_WINDOW = 49  # elements of a window, from which depthwise convolutions are faster on contiguous images
SMALL_IMAGE = 14 * 14  # pixels: at most so many of one image are faster channels-last even there
FEW_OUTPUTS = 2

# GPU
_GPU_COPY_RATE = 3.2e12  # bytes a second, read and written, of the copies that cuDNN makes of contiguous images
_GPU_WEIGHT_RATE = 1.1e12  # bytes a second of the weights that it copies to channels-last at each call
_GPU_CALL = 2.2e-6  # seconds of the launch of such a copy
_GPU_HOST = 4e-6  # seconds more in which the host launches it, beside a channels-last call
_GPU_DEPTHWISE = 6.8e-12  # seconds more for an element of a result of a depthwise convolution of contiguous images
_GPU_DEPTHWISE_IMAGES = 3.4e-11  # the same for the gradient of the images
_GPU_DEPTHWISE_WEIGHTS = 3.7e-11  # the same for the gradient of the weights
_GPU_FLOAT32_RATE = 4.5e13  # multiply-adds a second that float32 kernels lose on channels-last images
_GPU_FLOAT32_IMAGES = 2e12  # bytes a second of the images, for the same kernels
_GPU_GROUPED_RATE = 5e11  # bytes a second of the images of grouped convolutions, channels-last
LARGE_IMAGE = 28 * 28  # pixels of a result, from which 1x1 convolutions read contiguous images as they are


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution in numbers. Sizes that change from call to call count as STAND_IN."""

    is_transposed: bool
    is_depthwise: bool
    groups: int
    images: int
    pixels: int  # of one result
    window: int  # elements
    inputs: int  # channels
    outputs: int
    input_bytes: int
    output_bytes: int
    weight_bytes: int
    macs: int  # multiply-adds


def convolution(call: OperatorCall, site: Site, result: torch.Tensor) -> Convolution:
    """The numbers of a call of `aten.convolution` that gives `result`, or of its gradient."""
    x, w = site.value(call.get("input")), site.value(call.get("weight"))
    groups, is_transposed = number(call.get("groups")), bool(call.get("transposed"))
    images, inputs, *_ = sizes(x)
    _, outputs, *pixels = sizes(result)
    window = prod(sizes(w)[2:])
    macs = images * inputs // groups * outputs * window * prod(sizes(x)[2:] if is_transposed else pixels)
    return Convolution(
        is_transposed=is_transposed,
        is_depthwise=groups > 1 and groups == inputs,
        groups=groups,
        images=images,
        pixels=prod(pixels),
        window=window,
        inputs=inputs,
        outputs=outputs,
        input_bytes=nbytes(x),
        output_bytes=nbytes(result),
        weight_bytes=nbytes(w),
        macs=macs,
    )


def can_pack(site: Site, weight: object) -> bool:
    """Whether oneDNN packs a weight of this dtype once: it is frozen, and this processor computes in the dtype."""
    value = site.tensor(weight)
    if value is None or value.device.type != "cpu" or not site.is_frozen(weight) or value.dim() not in (4, 5):
        return False
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    return value.dtype == torch.float32 or (
        value.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def is_head(each: Convolution) -> bool:
    """Whether a 1x1 convolution has so few results that oneDNN is slow for channels-last images."""
    return each.window == 1 and each.outputs <= FEW_OUTPUTS and each.groups == 1


def layout_seconds(
    each: Convolution, *, dtype: torch.dtype, is_gpu: bool, is_packed: bool, is_frozen: bool
) -> tuple[float, float]:
    """The seconds that contiguous and channels-last images cost a convolution, above its best form.

    `is_packed`: oneDNN packs the weight once. `is_frozen`: the weight is brought to the layout of the images once.
    """
    if is_gpu:
        return _gpu_seconds(each, is_short=is_short(dtype), is_frozen=is_frozen)
    return _packed_seconds(each) if is_packed else _unpacked_seconds(each)


def gradient_seconds(
    each: Convolution, *, dtype: torch.dtype, is_gpu: bool, images: bool, weights: bool, is_cast: bool
) -> tuple[float, float]:
    """The seconds that contiguous and channels-last images cost the gradient of a convolution, above its best form.

    `images`, `weights`: whether the gradients of these are wanted. `is_cast`: a kernel of ours casts the weight, and
    the gradient of it, and brings them to any layout.
    """
    if not is_gpu:
        return _cpu_gradient_seconds(each, images=images, weights=weights)
    gradients = images + weights
    moved = each.input_bytes + each.output_bytes
    if each.is_depthwise:
        elements = each.images * each.outputs * each.pixels
        return elements * (images * _GPU_DEPTHWISE_IMAGES + weights * _GPU_DEPTHWISE_WEIGHTS), 0.0
    if each.groups > 1:
        return 0.0, gradients * moved / _GPU_GROUPED_RATE
    weight = each.weight_bytes / _GPU_WEIGHT_RATE
    copies = 0 if is_cast or each.window == 1 else gradients  # of the weight, and of its gradient
    last = copies * (_GPU_CALL + _GPU_HOST + weight)
    if not is_short(dtype):
        return 0.0, gradients * (each.macs / _GPU_FLOAT32_RATE + moved / _GPU_FLOAT32_IMAGES) + last
    if each.window == 1 and each.pixels >= LARGE_IMAGE:
        return 0.0, 0.0
    return gradients * (2 * moved / _GPU_COPY_RATE + 2 * _GPU_CALL + weight), last


def _cpu_gradient_seconds(each: Convolution, *, images: bool, weights: bool) -> tuple[float, float]:
    """The same by oneDNN, which is given a channels-last copy of the weight, and gives the gradient of it so."""
    gradients = images + weights
    if is_head(each):
        return 0.0, gradients * each.input_bytes / _HEAD_GRADIENT_RATE
    if each.groups > 1 and not each.is_depthwise:
        return 0.0, 0.0
    moved = each.input_bytes + each.output_bytes
    contiguous = gradients * (moved / _IMAGE_RATE + each.weight_bytes / _WEIGHT_RATE + _CALL)
    if each.is_depthwise and each.window >= WIDE_WINDOW:
        contiguous += weights * each.macs / _WIDE_DEPTHWISE_RATE
    last = gradients * each.weight_bytes / _WEIGHT_RATE + weights * copy_seconds(each.weight_bytes, is_gpu=False)
    return contiguous, last


def group_norm_seconds(value: torch.Tensor, groups: int, *, is_gpu: bool, is_gradient: bool) -> float:
    """The seconds that channels-last images cost a group norm: a pixel of few channels of a group fills no vector."""
    channels = sizes(value)[1] // max(groups, 1)
    if is_gpu or not 0 < channels < FULL_PIXEL:
        return 0.0
    pixels = prod(sizes(value)) // channels
    return pixels * (_GROUP_NORM_GRADIENT_PIXEL if is_gradient else _GROUP_NORM_PIXEL)


def has_layouts(dtype: torch.dtype, *, is_gpu: bool, is_packed: bool) -> bool:
    """Whether the library computes convolutions of this dtype faster in one of the layouts."""
    if is_gpu:
        return dtype in (torch.float16, torch.bfloat16, torch.float32)
    return is_packed or (dtype == torch.float32 and torch.backends.mkldnn.is_available())


def is_short(dtype: torch.dtype) -> bool:
    """Whether a GPU's matrix unit computes convolutions of a dtype: in 16 bits, and float32 as TF32."""
    return dtype in (torch.float16, torch.bfloat16) or (dtype == torch.float32 and torch.backends.cudnn.allow_tf32)


def copy_seconds(nbytes: int, *, is_gpu: bool) -> float:
    """The seconds of a copy of an image from one layout to the other."""
    return 2 * nbytes / (0.7 * NOMINAL.bandwidth) if is_gpu else 2 * nbytes / _COPY_RATE


def _contiguous_seconds(each: Convolution) -> float:
    if each.is_depthwise and each.window >= LARGE_WINDOW:
        return 0.0
    images = each.input_bytes + each.output_bytes
    return images / _IMAGE_RATE + each.weight_bytes / _WEIGHT_RATE + _CALL


def _packed_seconds(each: Convolution) -> tuple[float, float]:
    return _contiguous_seconds(each), _channels_last_penalty(each, is_packed=True)


def _unpacked_seconds(each: Convolution) -> tuple[float, float]:
    last = each.weight_bytes / _WEIGHT_RATE_LAST + _channels_last_penalty(each, is_packed=False)
    return _contiguous_seconds(each), last


def _channels_last_penalty(each: Convolution, *, is_packed: bool) -> float:
    """The seconds that are lost where oneDNN's kernels for channels-last images are the slower ones."""
    if each.is_depthwise and each.window >= LARGE_WINDOW:
        is_small = is_packed and each.images == 1 and each.pixels <= SMALL_IMAGE
        return 0.0 if is_small else each.macs / _LARGE_DEPTHWISE_RATE
    return each.input_bytes / _FEW_OUTPUTS_RATE if is_head(each) else 0.0


def _gpu_seconds(each: Convolution, *, is_short: bool, is_frozen: bool) -> tuple[float, float]:
    """The same for cuDNN. A depthwise convolution is torch's own kernel, which reads channels-last images in order."""
    images = each.input_bytes + each.output_bytes
    if each.is_depthwise:
        return each.images * each.outputs * each.pixels * _GPU_DEPTHWISE, 0.0
    if each.groups > 1:
        return 0.0, images / _GPU_GROUPED_RATE  # cuDNN has few such kernels for channels-last images
    copied = 0.0 if is_frozen or each.window == 1 else _GPU_CALL + _GPU_HOST + each.weight_bytes / _GPU_WEIGHT_RATE
    if not is_short:
        return 0.0, each.macs / _GPU_FLOAT32_RATE + images / _GPU_FLOAT32_IMAGES + copied
    if each.window == 1 and each.pixels >= LARGE_IMAGE:
        return 0.0, 0.0
    weight = each.weight_bytes / _GPU_WEIGHT_RATE  # is copied for contiguous images too
    return 2 * images / _GPU_COPY_RATE + 2 * _GPU_CALL + weight, copied


def sizes(value: torch.Tensor) -> list[int]:
    """The sizes of a traced tensor, as numbers."""
    return [number(n) for n in value.shape]


def nbytes(value: torch.Tensor) -> int:
    """The bytes of a traced tensor, as a number."""
    return prod(sizes(value)) * value.itemsize


def number(n: Any) -> int:
    """A size as a number; a symbol in it counts as STAND_IN, and so does a size that this makes less than 1.

    >>> number(7)
    7
    """
    if isinstance(n, int):
        return int(n)
    known = n.node.maybe_as_int()
    expression = n.node.expr
    if known is not None:
        return known
    try:
        size = int(expression.subs(dict.fromkeys(expression.free_symbols, STAND_IN)))
    except (ZeroDivisionError, TypeError):  # a quotient of sizes, as of s0 // (s1 // 98)
        return STAND_IN
    return size if size > 0 else STAND_IN
