"""What ATen's schema says about an operator: what it writes and aliases, its `out=` form; and why it stays a call.

Takes an operator's name ("aten.mm.default"). Gives `OperatorFacts` read from its schema; None if there is no operator.

>>> operator_facts("aten.mm.default").out_op
'aten.mm.out'
>>> operator_facts("aten.copy_.default").written
(0,)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from minductor.frontend.quirks.torch_versions import is_capturable, is_seeded, only_writes
from minductor.ir.plan.plan import DispatchLine, ExternLine, Plan

# Namespaces of operators whose every effect is in the schema.
KNOWN_NAMESPACES = ("aten.", "prims.", "prim.", "quantized_decomposed.", "mkldnn.")

# Operators whose `out=` form computes directly into the result; most others compute elsewhere and copy.
OUT_FORMS: Mapping[str, str] = {
    f"aten.{name}.default": f"aten.{name}.out"
    for name in ("mm", "bmm", "addmm", "baddbmm", "_addmm_activation", "cumsum", "cumprod")
}

# Operators that are meant to stay calls, with the reason; any other call is made because no rule lowers it.
REASONS: Mapping[str, str] = {
    name: reason
    for reason, names in {
        "matrix products are the library's": "mm bmm addmm baddbmm mv addmv dot _addmm_activation _weight_int8pack_mm",
        "convolutions are the library's": "convolution convolution_backward",
        "products and convolutions with packed weights are oneDNN's": "_linear_pointwise _convolution_pointwise"
        " _convolution_transpose_pointwise",
        "attention is the library's": " ".join(
            f"_scaled_dot_product_{name} _scaled_dot_product_{name}_backward"
            for name in ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention")
        ),
        "where the maxima of large windows are takes a comparison of each element": "max_pool2d_with_indices",
        "few elements are a maximum, and an index names each": "max_pool2d_with_indices_backward"
        " max_pool3d_with_indices_backward adaptive_max_pool2d_backward adaptive_max_pool3d_backward",
        "which unequal windows hold an element takes divisions": "_adaptive_avg_pool2d_backward"
        " _adaptive_avg_pool3d_backward",
        "short windows of 16-bit rows are added one by one": "_adaptive_avg_pool2d _adaptive_avg_pool3d",
        "where maxima are in channels that lie side by side is compared with few bytes": "adaptive_max_pool2d"
        " adaptive_max_pool3d",
        "samples at given places are the library's": "grid_sampler_2d grid_sampler_2d_backward"
        " grid_sampler_3d_backward",
        "sorting is the library's": "sort topk kthvalue median nanmedian mode _unique2 unique_dim",
        "the size of its result is data": "unique_consecutive nonzero",
        "several values may go to one place": "histc bincount",
        "the length of the row is not known": "bucketize searchsorted",
        "a size that data decides": "_local_scalar_dense",
        "nothing to compute": "empty_strided",
        "random numbers are eager's, bit for bit": "native_dropout bernoulli bernoulli_ rand rand_like randn randn_like"
        " randint randint_like randperm normal multinomial",
    }.items()
    for name in names.split()
}


# torch tags these as random because of their dropout probability, which they refuse on a CPU.
NOT_RANDOM = frozenset(f"aten._scaled_dot_product_flash_attention_for_cpu{part}.default" for part in ("", "_backward"))

_FLOAT_ONLY = (
    "_adaptive_avg_pool2d _adaptive_avg_pool3d _log_softmax _prelu_kernel _softmax adaptive_max_pool2d"
    " adaptive_max_pool3d binary_cross_entropy celu elu frac glu grid_sampler_2d grid_sampler_3d hardsigmoid"
    " hardswish huber_loss lerp log_sigmoid_forward logaddexp logaddexp2 nll_loss2d_forward nll_loss_forward"
    " smooth_l1_loss std std_mean var var_mean"
)
# Operators that eager computes of floats only, although torch traces them on integers and bools too.
FLOAT_ONLY = frozenset(_FLOAT_ONLY.split())

# Operator -> the kinds of numbers that torch traces for it and eager refuses.
REFUSED_KINDS: Mapping[str, frozenset[str]] = {
    name: frozenset(kinds.split())
    for names, kinds in (
        (_FLOAT_ONLY, "int uint bool"),
        ("bitwise_and bitwise_or bitwise_xor bitwise_not", "float complex"),
        ("bitwise_left_shift bitwise_right_shift __lshift__ __rshift__", "float complex bool"),
        ("fmod remainder relu", "bool"),
        ("im2col", "int uint"),
    )
    for name in names.split()
}

# Parameters at which ATen turns a number into a tensor of the number's own dtype.
OPERANDS = ("self", "other")

_FUNCTIONAL_WRITES = (
    "index_add.default index_copy.default index_fill.int_Scalar index_fill.int_Tensor index_put.default"
    " index_reduce.default _index_put_impl.default masked_scatter.default put.default scatter.src scatter.value"
    " scatter.reduce scatter.value_reduce scatter_add.default scatter_reduce.two"
)
# Functional writes to their first argument -> the in-place form, which computes the same without a copy.
IN_PLACE_FORMS: Mapping[str, str] = {
    f"aten.{name}": f"aten.{name.replace('.', '_.')}" for name in _FUNCTIONAL_WRITES.split()
}


class OperatorFacts(NamedTuple):
    """What an operator's schema says.

    `written`: the positions of the arguments that it writes (a number, or the name if keyword-only).
    `returned`: for each result the position of the argument that it aliases; None if the result is new.
    `out_op`: its `out=` form if that computes directly into the result. `copy_op`: the `out=` form of its copying
    variant, if the operator returns a view. `is_ordered`: it keeps its order among such calls, as random numbers,
    collectives and custom operators do. `is_capturable`: a CUDA graph may replay it.
    """

    written: tuple[int | str, ...]
    returned: tuple[int | str | None, ...]
    out_op: str
    copy_op: str
    is_random: bool
    is_ordered: bool
    gives_nothing: bool
    is_capturable: bool


def operator_names(names: str) -> tuple[str, ...]:
    """The full names of ATen operators that blanks separate; one without an overload has the overload `default`.

    >>> operator_names("clone fill.Tensor")
    ('aten.clone.default', 'aten.fill.Tensor')
    """
    return tuple(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names.split())


def find_overload(op: str) -> Any:
    """The torch operator of that name, or None."""
    parts = op.split(".")
    if len(parts) != 3:
        return None
    space = getattr(torch.ops, parts[0], None)
    packet = getattr(space, parts[1], None)
    return getattr(packet, parts[2], None)


@lru_cache(4096)
def operator_facts(op: str) -> OperatorFacts | None:
    """What the schema of an operator says; None if torch has no such operator."""
    overload = find_overload(op)
    if overload is None:
        return None
    schema = overload._schema
    places: dict[str, int | str] = {}  # alias set -> the argument that it names
    written: list[int | str] = []
    aliased = False
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is None:
            continue
        place = argument.name if argument.kwarg_only else number
        places.update(dict.fromkeys(argument.alias_info.before_set, place))
        if argument.alias_info.is_write:
            written.append(place)
    returned: list[int | str | None] = []
    for result in schema.returns:
        names = () if result.alias_info is None else result.alias_info.before_set
        returned.append(next((places[n] for n in names if n in places), None))
        aliased = aliased or result.alias_info is not None
    is_random = is_seeded(overload) and op not in NOT_RANDOM
    copy_op = _copying_out_form(op) if aliased and not written else ""
    is_ordered = is_random or not op.startswith(KNOWN_NAMESPACES)
    nothing = len(schema.returns) == 0
    places_of = (tuple(written), tuple(returned))
    return OperatorFacts(
        *places_of, OUT_FORMS.get(op, ""), copy_op, is_random, is_ordered, nothing, is_capturable(overload)
    )


def parameter_names(op: str) -> tuple[str, ...]:
    """An operator's parameters, in order."""
    return tuple(argument.name for argument in find_overload(op)._schema.arguments)


@lru_cache(4096)
def element_numbers(op: str) -> tuple[tuple[int, str], ...]:
    """Position and name of each number that an operator casts to the dtype of its result, and refuses if too large."""
    found = find_overload(op) if op.startswith("aten.") else None
    arguments = () if found is None else found._schema.arguments
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(arguments)
        if str(argument.type) in ("number", "Optional[number]") and argument.name not in OPERANDS
    )


def mutable_parameters(op: str) -> tuple[tuple[str, bool], ...]:
    """The parameters that an operator writes, in order, and whether each is a list of tensors."""
    found = (a for a in find_overload(op)._schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    return tuple((a.name, "List[" in str(a.type)) for a in found)


def with_schemas(plan: Plan) -> Plan:
    """The plan with the schema of the operator in each line that calls an ATen operator."""
    lines = tuple(_with_schema(line) for line in plan.lines)
    return replace(plan, lines=lines, regions=tuple([with_schemas(region) for region in plan.regions]))


def _with_schema(line: Any) -> Any:  # a line of the same class
    match line:
        case ExternLine(op=op) if op.startswith(("aten.", "mkldnn.")):
            return replace(line, schema=_schema(op))
        case DispatchLine(variants=variants):
            return replace(line, variants=tuple(tuple([_with_schema(inner) for inner in group]) for group in variants))
        case _:
            return line


@lru_cache(4096)
def _schema(op: str) -> str:
    found = find_overload(op)
    return "" if found is None else str(found._schema)


def only_writes_results(op: str) -> bool:
    """Whether an operator only writes results that it is given."""
    return only_writes(find_overload(op))


def _copying_out_form(op: str) -> str:
    space, name, variant = op.split(".")
    copying = f"{space}.{name}_copy.{'out' if variant == 'default' else f'{variant}_out'}"
    return copying if find_overload(copying) is not None else ""


def reason_for_call(op: str) -> str:
    """The reason, for the user, why an operator is an extern call and no kernel."""
    if op.startswith("_c10d_functional."):
        return "collectives are the process group's"
    if not op.startswith(KNOWN_NAMESPACES):
        return "a custom operator"
    return REASONS.get(op.split(".")[1], "no rule for this operator")


def is_expected_call(op: str) -> bool:
    """Whether an operator is meant to be an extern call: it is a custom operator, or REASONS has its name."""
    return not op.startswith(KNOWN_NAMESPACES) or op.split(".")[1] in REASONS
