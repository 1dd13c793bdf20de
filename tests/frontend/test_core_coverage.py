"""Every operator that ATen tags as core: a graph of it alone has no extern call, and launches a kernel or is a view.

Takes the tags of the installed torch and one call of each operator. Gives the share that is lowered; what is not has
to stand in the README. Refuses a core operator that has no call here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from minductor.ir.program.nodes import View
from tests.frontend.tracing import integers, lowered, randn

README = Path(__file__).parents[2] / "README.md"
FLOOR = 0.95

# What the share leaves out: sizes, memory without values, what libraries do, random numbers, resizing in place.
LEFT_OUT = re.compile(
    r"aten\.(sym_\w+|empty\w*|mm|bmm|addmm|convolution\w*|sort|topk|_fft\w*|rand\w*|native_dropout|resize_)\.\w+"
)
X, Y, UNIT = randn(4, 6), randn(4, 6, seed=1), torch.rand(4, 6, generator=torch.Generator().manual_seed(2))
WHOLE, OTHER, TRUTH = integers(-9, 9, 4, 6), integers(1, 9, 4, 6, seed=1), X > 0
PLACES = integers(0, 4, 4, 6)
PICTURE, VOLUME = randn(2, 3, 6, 8), randn(1, 2, 4, 6, 8)
VECTOR = randn(3).abs() + 0.5
ROWS = integers(0, 4, 5)

# operator -> its arguments; keyword arguments last, in a dict
CALLS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        **dict.fromkeys(
            [
                "abs",
                "acos",
                "alias",
                "any",
                "argmax",
                "argmin",
                "asin",
                "asinh",
                "atan",
                "atanh",
                "ceil",
                "clone",
                "cos",
                "cosh",
                "elu",
                "erf",
                "exp",
                "expm1",
                "floor",
                "gelu",
                "hardtanh",
                "isinf",
                "isnan",
                "leaky_relu",
                "log",
                "log10",
                "log1p",
                "log2",
                "logical_not",
                "mean",
                "neg",
                "prod",
                "reciprocal",
                "relu",
                "round",
                "rsqrt",
                "sigmoid",
                "sign",
                "sin",
                "sinh",
                "sqrt",
                "tan",
                "tanh",
                "trunc",
                "amax",
                "amin",
            ],
            (UNIT,),
        ),
        "acosh": (UNIT + 1,),
        **dict.fromkeys(["atan2", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "copy"], (X, Y)),
        "atan2.out": (X, Y, {"out": torch.empty(4, 6)}),
        **{
            f"{name}.Tensor": (X, Y)
            for name in ["add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder"]
        },
        **{
            f"{name}.Scalar": (X, 3)
            for name in ["add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder", "fill"]
        },
        **{f"bitwise_{name}.Tensor": (WHOLE, OTHER) for name in ("and", "or", "xor")},
        **{f"bitwise_{name}.Scalar": (WHOLE, 5) for name in ("and", "or", "xor")},
        "bitwise_not": (WHOLE,),
        "div.Tensor_mode": (X, Y, {"rounding_mode": "floor"}),
        "div.Scalar_mode": (X, 2, {"rounding_mode": "trunc"}),
        "pow.Tensor_Tensor": (UNIT, X),
        "pow.Tensor_Scalar": (X, 3),
        "pow.Scalar": (2, X),
        "clamp": (X, -1, 1),
        "clamp.Tensor": (X, Y, Y + 1),
        "where.self": (TRUTH, X, Y),
        "_to_copy": (X, {"dtype": torch.int32}),
        "_softmax": (X, 1, False),
        "_log_softmax": (X, 1, False),
        **{
            name: (X, 1)
            for name in ["any.dim", "prod.dim_int", "max.dim", "min.dim", "cumsum", "squeeze.dim", "unsqueeze"]
        },
        "any.dims": (X, [0, 1]),
        "mean.dim": (X, [1]),
        "sum.dim_IntList": (X, [1]),
        "var.dim": (X, [1]),
        "var.correction": (X, [1], {"correction": 1}),
        "squeeze.dims": (randn(1, 4, 1), [0, 2]),
        "permute": (X, [1, 0]),
        "expand": (randn(4, 1), [4, 6]),
        "view": (X, [6, 4]),
        "repeat": (X, [2, 1]),
        "flip": (X, [1]),
        "as_strided": (X, [3, 2], [6, 2], 1),
        "diagonal": (X,),
        "select.int": (X, 1, 2),
        "slice.Tensor": (X, 1, 1, 5, 2),
        "split_with_sizes": (X, [1, 3]),
        "select_scatter": (X, randn(6), 0, 1),
        "slice_scatter": (X, randn(2, 6), 0, 1, 3),
        "cat": ([X, Y], 1),
        "constant_pad_nd": (X, [1, 2], 0.5),
        "reflection_pad1d": (X, [1, 2]),
        "reflection_pad2d": (PICTURE, [1, 2, 0, 1]),
        "reflection_pad3d": (VOLUME, [1, 2, 0, 1, 1, 1]),
        "replication_pad2d": (PICTURE, [1, 2, 0, 1]),
        "replication_pad3d": (VOLUME, [1, 2, 0, 1, 1, 1]),
        "embedding": (X, ROWS),
        "gather": (X, 0, PLACES),
        "index.Tensor": (X, [ROWS]),
        "index_select": (X, 0, ROWS),
        "index_put": (X, [ROWS], randn(5, 6)),
        "embedding_dense_backward": (randn(5, 6), ROWS, 4, -1, False),
        "_embedding_bag": (X, ROWS, torch.tensor([0, 2])),
        "masked_scatter": (X, TRUTH, Y),
        "nonzero": (TRUTH,),
        "_local_scalar_dense": (torch.tensor(1.5),),
        "scatter.value": (X, 0, PLACES, 1.5),
        "scatter.src": (X, 0, PLACES, Y),
        "scatter_add": (X, 0, PLACES, Y),
        "scatter_reduce.two": (X, 0, PLACES, Y, "amax"),
        "arange.start_step": (0, 7, 2),
        "full": ([4, 6], 1.5),
        "full_like": (X, 1.5),
        "scalar_tensor": (1.5,),
        "native_layer_norm": (X, [6], randn(6), randn(6), 1e-5),
        "native_layer_norm_backward": (Y, X, [6], randn(4, 1), UNIT[:, :1], randn(6), randn(6), [True] * 3),
        "native_group_norm": (PICTURE, VECTOR, VECTOR, 2, 3, 48, 3, 1e-5),
        "native_group_norm_backward": (
            *(PICTURE, PICTURE, randn(2, 3), UNIT[:2, :3], VECTOR, 2, 3, 48, 3),
            [True] * 3,
        ),
        "_native_batch_norm_legit": (PICTURE, VECTOR, VECTOR, randn(3), VECTOR, True, 0.1, 1e-5),
        "_native_batch_norm_legit.no_stats": (PICTURE, VECTOR, VECTOR, True, 0.1, 1e-5),
        "_native_batch_norm_legit_no_training": (PICTURE, VECTOR, VECTOR, randn(3), VECTOR, 0.1, 1e-5),
        "_cdist_forward": (X, Y, 2.0, None),
        "_pdist_forward": (X, 2.0),
        "adaptive_avg_pool1d": (PICTURE[0], [3]),
        "avg_pool1d": (PICTURE[0], [2]),
        "_adaptive_avg_pool2d": (PICTURE, [3, 2]),
        "_adaptive_avg_pool2d_backward": (randn(2, 3, 3, 2), PICTURE),
        "_adaptive_avg_pool3d": (VOLUME, [2, 3, 2]),
        "avg_pool2d": (PICTURE, [2, 2]),
        "avg_pool2d_backward": (randn(2, 3, 3, 4), PICTURE, [2, 2], [2, 2], [0, 0], False, True, None),
        "avg_pool3d": (VOLUME, [2, 2, 2]),
        "max_pool2d_with_indices": (PICTURE, [2, 2]),
        "max_pool2d_with_indices_backward": (
            *(randn(2, 3, 3, 4), PICTURE, [2, 2], [2, 2], [0, 0], [1, 1], False),
            torch.ops.aten.max_pool2d_with_indices(PICTURE, [2, 2])[1],
        ),
        "max_pool3d_with_indices": (VOLUME, [2, 2, 2]),
        "col2im": (randn(2, 12, 12), [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]),
        "grid_sampler_2d": (PICTURE, randn(2, 3, 3, 2) / 2, 0, 0, False),
        "upsample_bilinear2d.vec": (PICTURE, [7, 9], False, None),
        "upsample_nearest2d.vec": (PICTURE, [7, 9], None),
    }
)


def core() -> list[Any]:
    """The overloads with the tag, less those that the share leaves out."""
    names = sorted({name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")})
    found: list[Any] = []
    for name in names:
        packet, _, variant = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), variant or "default", None)
        if op is not None and torch.Tag.core in op.tags and not LEFT_OUT.fullmatch(str(op)):
            found.append(op)
    return found


def short(op: Any) -> str:
    return str(op).removeprefix("aten.").removesuffix(".default")


def is_native(op: Any) -> bool:
    if op.name() in ("aten::nonzero", "aten::_local_scalar_dense"):
        return False  # the size or the number in the result is data
    given = CALLS[short(op)]
    named = given[-1] if isinstance(given[-1], dict) else {}
    args = given[: len(given) - bool(named)]
    tensors, fn = separated(op, args, named)
    seen = lowered(fn, *tensors)
    does_something = bool(seen.kernels) or any(isinstance(value, View) for value in seen.program.outputs)
    return does_something and not seen.externs


def separated(op: Any, args: Any, named: Any) -> tuple[list[torch.Tensor], Callable[..., Any]]:
    """The call as a function of its tensors."""
    leaves, spec = torch.utils._pytree.tree_flatten((args, named))
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def fn(*tensors: torch.Tensor) -> Any:
        values = dict(enumerate(leaves)) | dict(zip(places, tensors, strict=True))
        first, second = torch.utils._pytree.tree_unflatten(list(values.values()), spec)
        return op(*first, **second)

    return [leaves[n].clone() for n in places], fn


def listed() -> set[str]:
    """The core operators that the README says are called."""
    (line,) = re.findall(r"^- Of the core ATen operators, ((?:.|\n  )*)$", README.read_text(), re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", line))


def test_every_core_operator_has_a_call_here() -> None:
    assert {short(op) for op in core()} == set(CALLS)


@pytest.fixture(scope="module")
def called() -> set[str]:
    """The core operators that become extern calls."""
    with torch.no_grad():
        return {short(op) for op in core() if not is_native(op)}


def test_the_share_of_core_operators_that_are_lowered(called: set[str]) -> None:
    assert len(called) <= (1 - FLOOR) * len(CALLS), sorted(called)


def test_the_readme_lists_the_rest(called: set[str]) -> None:
    assert called == listed()
