"""Calls of torch's operators from C++: by a function that torch exports, or through torch's dispatcher.

Takes an Extern line with its schema, and the dtypes of the tensors that are known. Gives the text of the call, and the
declaration that it needs. Refuses (NotNative) operators that are not torch's own, and values for which torch's C
interface has no form: Python makes these calls.

An exported function takes the schema's parameters in order: a tensor as a handle, a list with its length, an optional
value as a pointer. It computes on one kind of device, so the dispatcher makes the calls whose tensors are on several.
The dispatcher finds an operator by its name and takes a stack of 64-bit values. Functions for CUDA are called through
pointers (minductor_cuda.h: MD_LINK).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from minductor.codegen.cpp.cpp_text import index_text
from minductor.codegen.wrapper.operator_schema import Parameter, Schema, parse_schema
from minductor.codegen.wrapper.wrapper_cpp_numbers import literal
from minductor.core.dtypes import DType
from minductor.core.errors import NotNative
from minductor.core.expressions.expr import Expr
from minductor.ir.plan.plan import ExternLine
from minductor.ir.program.nodes import Argument, Token

# Operators for which torch exports functions `aoti_torch_cpu_...` and `aoti_torch_cuda_...`, in every version that we
# support.
_EXPORTED = """
_adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward _cdist_backward _cdist_forward
_embedding_bag _embedding_bag_dense_backward _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward
_fft_c2c _fft_r2c _pdist_backward _pdist_forward adaptive_max_pool2d adaptive_max_pool2d_backward
adaptive_max_pool3d adaptive_max_pool3d_backward addmm.out avg_pool2d avg_pool2d_backward avg_pool3d
avg_pool3d_backward baddbmm.out bmm.out bucketize.Tensor cholesky_inverse cholesky_solve convolution
convolution_backward cummax cummin cumprod cumsum fractional_max_pool2d grid_sampler_2d_backward index.Tensor
index_put kthvalue logcumsumexp masked_scatter masked_scatter_backward masked_select max_pool2d_with_indices
max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward max_unpool2d max_unpool3d
median mm.out mode nanmedian native_dropout nonzero ormqr polar rand randint randint.low randn randperm
repeat_interleave.Tensor replication_pad1d_backward replication_pad2d_backward scatter.src_out
soft_margin_loss_backward sort sort.stable topk triangular_solve
"""
# Operators with a function for one kind of device only.
_OF_ONE_DEVICE: Mapping[str, str] = {
    "cpu": "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward",
    "cuda": """
        _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
        _scaled_dot_product_flash_attention_backward
    """,
}


def _functions(kind: str) -> Iterator[tuple[str, str]]:
    for op in (*_EXPORTED.split(), *_OF_ONE_DEVICE[kind].split()):
        yield f"aten.{op if '.' in op else f'{op}.default'}", f"aoti_torch_{kind}_{op.replace('.', '_')}"


# By the kind of device: the function of an operator.
FUNCTIONS: Mapping[str, Mapping[str, str]] = {kind: dict(_functions(kind)) for kind in _OF_ONE_DEVICE}

_MEMORY_FORMATS: Mapping[str, int] = {
    "contiguous_format": 0,
    "preserve_format": 1,
    "channels_last": 2,
    "channels_last_3d": 3,
}
_LIST = re.compile(r"(?P<item>.*)\[(?P<count>\d*)\]")
_C_TYPES: Mapping[str, str] = {
    "Tensor": "md_Handle",
    "int": "int64_t",
    "SymInt": "int64_t",
    "float": "double",
    "Scalar": "double",
}
# Declared with an int32_t: flags, and torch's numbers of its own kinds.
_FLAGS = ("bool", "ScalarType", "Layout", "MemoryFormat")


def call(line: ExternLine, dtypes: Mapping[str, DType]) -> tuple[str, str]:
    """The call as an expression that is 0 on success, and its declaration ("" if it needs none)."""
    if not line.schema or not line.op.startswith(("aten.", "mkldnn.")) or line.dtypes:
        raise NotNative(line.op)
    schema = parse_schema(line.schema)
    given = _bound(line, schema)
    kind = line.device.partition(":")[0]
    function = FUNCTIONS.get(kind, {}).get(line.op)
    if function and _is_exact(given, line, dtypes):
        return _by_function(function, schema, given, line), _declaration(function, schema, kind, is_out=line.is_out)
    return _by_dispatcher(schema, given, line), ""


def declarations(kind: str, schemas: Mapping[str, str]) -> Iterator[str]:
    """The declarations of these operators' functions, which a test compares with torch's headers."""
    for op, text in schemas.items():
        yield _declaration(FUNCTIONS[kind][op], parse_schema(text), kind, is_out=op.endswith("out"))


def linked(declaration: str) -> tuple[str, ...]:
    """The name of the function that a declaration makes a pointer for, if it makes one."""
    return tuple(re.findall(r"^MD_LINK\((\w+)", declaration))


def _bound(line: ExternLine, schema: Schema) -> list[tuple[Parameter, Argument]]:
    """Each parameter with its argument."""
    named = dict(line.kwargs)
    outs = [name for name in line.results if name is not None] if line.is_out else []
    bound: list[tuple[Parameter, Argument]] = []
    for place, parameter in enumerate(schema.parameters):
        if place < len(line.args) and not parameter.is_keyword:
            value = line.args[place]
        elif parameter.name in named:
            value = named[parameter.name]
        elif outs and parameter.is_keyword and parameter.type == "Tensor":
            value = Token("tensor", outs.pop(0))
        else:
            value = _default(parameter)
        bound.append((parameter, value))
    if outs or len(line.args) > len(schema.parameters):
        raise NotNative(f"{line.op} with other arguments than its schema has")
    return bound


def _default(parameter: Parameter) -> Argument:
    """The default that the schema gives for an argument that is left out."""
    match parameter.default:
        case "None":
            return None
        case "True" | "False":
            return parameter.default == "True"
        case "":
            raise NotNative(f"a call without a value for {parameter.name}")
        case text if text[0] in "\"'":
            return text[1:-1]
        case text if text.startswith("["):
            return tuple(_number(item) for item in text[1:-1].split(",") if item.strip())
        case text if text in _MEMORY_FORMATS:
            return Token("memory_format", text)
        case text:
            return _number(text)


def _number(text: str) -> bool | int | float:
    text = text.strip()
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return float(text)


def _row(parameter: Parameter, item: str, count: str, value: Argument) -> list[Argument]:
    """The items of a list. A single number stands for all items if the schema gives their count."""
    if isinstance(value, tuple):
        return list(value)
    if count and item in ("int", "SymInt", "float", "bool"):
        return [value] * int(count)
    raise NotNative(f"a value of {parameter.name} that is not a list")


# --- by an exported function


def _is_exact(given: list[tuple[Parameter, Argument]], line: ExternLine, dtypes: Mapping[str, DType]) -> bool:
    """Whether the exported function computes what the operator does. It takes every number as a double, and ATen
    refuses a double for tensors of integers.
    """
    if not any(parameter.type == "Scalar" for parameter, _ in given):
        return True
    known = [dtypes.get(name) for name in line.results if name is not None]
    return line.is_out and all(dtype is not None and dtype.kind == "float" for dtype in known)


def _declaration(function: str, schema: Schema, kind: str, *, is_out: bool) -> str:
    """The declaration of a function: results that are written into come first, results that are made come last."""
    outs = [p for p in schema.parameters if is_out and p.is_keyword and p.type == "Tensor"]
    types = ["md_Handle"] * len(outs)
    for parameter in schema.parameters:
        if parameter not in outs:
            types += _declared(parameter.type)
    types += [] if is_out else ["md_Handle*"] * len(schema.returns)
    if kind == "cuda":
        return f"MD_LINK({', '.join((function, *types))})"
    return f'extern "C" int32_t {function}({", ".join(types)});'


def _declared(type: str) -> list[str]:
    """The C types of one parameter."""
    if type == "Device?":
        return ["int32_t*", "int32_t"]
    optional = type.endswith("?")
    type = type.removesuffix("?")
    if row := _LIST.fullmatch(type):
        (item,) = _declared(row["item"])
        return [f"const {item}*{'*' * optional}", "int64_t"]
    if type in _FLAGS:
        return ["int32_t" + "*" * optional]
    if type not in _C_TYPES:
        raise NotNative(f"a parameter of type {type}")
    return [_C_TYPES[type] + "*" * optional]


def _by_function(function: str, schema: Schema, given: list[tuple[Parameter, Argument]], line: ExternLine) -> str:
    outs = [f"{name}.handle" for name in line.results if name is not None] if line.is_out else []
    rest = given[: len(given) - len(outs)]
    texts = [*outs, *(text for parameter, value in rest for text in _plain(parameter, parameter.type, value))]
    if not line.is_out:
        if len(line.results) > len(schema.returns):
            raise NotNative(f"{line.op} with more results than its schema has")
        names = [*line.results, *[None] * (len(schema.returns) - len(line.results))]
        texts += [f"{name}.made()" if name else "md_Tensor().made()" for name in names]
    return f"{function}({', '.join(texts)})"


def _plain(parameter: Parameter, type: str, value: Argument) -> list[str]:
    """A value as the arguments of a C function that stand for it."""
    if type == "Device?":
        kind, index = ("0", "0") if value is None else _device(value)
        return ["nullptr" if value is None else f"md_Some<int32_t>({kind})", index]
    if row := _LIST.fullmatch(type.removesuffix("?")):
        (item,) = _declared(row["item"])
        if value is None:
            return ["nullptr", "0"]
        items = _row(parameter, row["item"], row["count"], value)
        texts = [text for entry in items for text in _plain(parameter, row["item"], entry)]
        form = "optional" if type.endswith("?") else "pointers" if item.endswith("*") else "words"
        const = "const " if form == "pointers" else ""
        return [f"md_Row<{const}{item}>({{{', '.join(texts)}}}).{form}()", str(len(items))]
    if type.endswith("?"):
        (inner,) = _declared(type[:-1])
        if value is None:
            return ["nullptr"]
        (text,) = _plain(parameter, type[:-1], value)
        return [f"md_Some<{inner}>({text})"]
    return [_simple(type, value)]


def _simple(type: str, value: Argument) -> str:
    """The C++ text of a value that takes one machine word."""
    match type, value:
        case "Tensor", Token("tensor", name):
            return f"{name}.handle"
        case (("int" | "SymInt" | "float" | "Scalar"), Expr()):
            return index_text(value)
        case (("int" | "SymInt"), (bool() | int())):
            return literal(int(value))
        case (("float" | "Scalar"), (bool() | int() | float())):
            return literal(float(value))
        case "bool", (bool() | int()):
            return "true" if value else "false"
        case "ScalarType", DType():
            return f"md_{value.torch_name}"
        case "ScalarType", int():  # a schema has torch's number as a default
            return str(value)
        case "Layout", Token("layout", "strided"):
            return "0"
        case "MemoryFormat", Token(_, name) if name in _MEMORY_FORMATS:
            return str(_MEMORY_FORMATS[name])
        case _:
            raise NotNative(f"{value} as an argument of type {type}")


def _device(value: Argument) -> tuple[str, str]:
    """A device as torch's number of its kind, and its own number."""
    match value:
        case Token("device", "cpu"):
            return "0", "0"
        case Token("device", name) if name.partition(":")[0] == "cuda":
            return "md_cuda()", name.partition(":")[2] or "md_gpu"
        case _:
            raise NotNative(f"a tensor on {value}")


# --- through the dispatcher


def _by_dispatcher(schema: Schema, given: list[tuple[Parameter, Argument]], line: ExternLine) -> str:
    texts = [_stacked(parameter, parameter.type, value) for parameter, value in given]
    returns = "".join(map(_letter, schema.returns))
    if returns != returns[::-1]:  # torch reads the last result with the kind of the first one, and so on
        raise NotNative(f"{line.op} with results of several kinds")
    made = [] if line.is_out else [f"&{name}" if name else "nullptr" for name in line.results]
    if returns != "l" and len(made) > len(returns):
        raise NotNative(f"{line.op} with more results than its schema has")
    stack = f"{{{', '.join(texts)}}}"
    return f'md_operator("{schema.name}", "{schema.overload}", {stack}, "{returns}", {{{", ".join(made)}}})'


def _letter(type: str) -> str:
    """How a result lies on the stack: "t" a tensor, "l" a list of tensors, "i" a value that owns nothing."""
    match type:
        case "Tensor":
            return "t"
        case "Tensor[]":
            return "l"
        case "int" | "SymInt" | "float" | "bool":
            return "i"
        case "()" | "":
            return ""
        case _:
            raise NotNative(f"a result of type {type}")


def _stacked(parameter: Parameter, type: str, value: Argument) -> str:
    """A value as one entry of the stack, which owns its content."""
    if type.endswith("?"):
        return "md_none" if value is None else f"md_some({_stacked(parameter, type[:-1], value)})"
    if row := _LIST.fullmatch(type):
        items = _row(parameter, row["item"], row["count"], value)
        return f"md_list({{{', '.join(_stacked(parameter, row['item'], item) for item in items)}}})"
    match type, value:
        case "Scalar", _:
            raise NotNative("a number of unknown type as an argument of the dispatcher")
        case "Tensor", Token("tensor", name):
            return f"md_own({name})"
        case "Device", _:
            kind, index = _device(value)
            return f"md_device({kind})" if kind == "0" else f"md_device({kind}, {index})"
        case "str", str() if re.fullmatch(r"[\w .,:+-]*", value):
            return f'md_text("{value}")'
        case "float", _:
            return f"md_real({_simple(type, value)})"
        case _:
            return f"md_word({_simple(type, value)})"
