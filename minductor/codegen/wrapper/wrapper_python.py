"""The wrapper as a Python module: `call(args)` runs one call of the graph.

Takes a Plan. Gives a module that a debugger can step through. Refuses nothing. The module's globals are set by
runtime/launch/launch.py: `kernels` (from symbol to function), `threads`, `choose` (picks one of several functions), the
constants, and the user's lines in `places`, where the text has ATen nodes. A kernel takes the current stream of its
GPU, or a number of threads on a CPU. Each launch and operator call stands below a comment with its handle and its ATen
nodes. Under the option `cudagraphs` a partition that can be captured is a function; `graphs` makes of it what `call`
calls, `empty_result` the storage of a result, and `given` makes of the results what the caller may keep.
"""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from minductor.codegen.operator_spelling import BITWISE, INFIX, PYTHON_MATH
from minductor.codegen.wrapper import wrapper_memory_checks
from minductor.codegen.wrapper.handle_comments import handle_comment
from minductor.codegen.wrapper.wrapper_nan_asserts import NanAsserts, Tested, stale
from minductor.codegen.wrapper.wrapper_partitions import (
    PartitionFunction,
    partition_comment,
    partition_functions,
    recorded,
)
from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Symbol, as_int
from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import Line, Plan
from minductor.ir.plan.storage import storage_bytes
from minductor.ir.plan.storage_lives import tensor_names, used_tensors
from minductor.ir.program.nodes import Argument, Body, Buffer, Constant, Index, Region, Token, View, symbols_in
from minductor.target import Env

LARGE_BYTES = 32 << 20  # of a CPU tensor: the C library maps it by itself, away from the heap; also in minductor_call.h

HEADER = (
    "import math\n\nimport torch\n"
    "from minductor.runtime.launch.launch import empty_strided, fail, laid_out, reinterpret\n"
)

# torch's own bindings of the calls that a small model makes most: 1.9 us against 3.9 us by the operator's object, and
# 3.6 against 7.8 us for a convolution
SHORT: Mapping[str, str] = {
    "aten.convolution.default": "torch.convolution",
    "aten.mm.out": "torch.mm",
    "aten.bmm.out": "torch.bmm",
    "aten.addmm.out": "torch.addmm",
    "aten.baddbmm.out": "torch.baddbmm",
    "aten._local_scalar_dense.default": "torch.Tensor.item",
}


def wrapper_python(plan: Plan, env: Env) -> str:
    """The Python module of a plan's wrapper."""
    return "\n".join(_Emitter(plan, env).module()) + "\n"


def python_calls(calls: Sequence[lines.ExternLine], env: Env) -> str:
    """A module with a function `extern_<handle>` for each call, which takes the call's tensors and numbers and returns
    a tuple of its results. A wrapper in another language uses it.
    """
    emitter = _Emitter(Plan("calls", (), (), ()), replace(env, options=replace(env.options, events=False)))
    functions: list[str] = []
    for line in calls:
        functions += ["", "", f"def extern_{line.handle}({', '.join(called_with(line))}):"]
        functions += [f"    {text}" for text in emitter.extern(line)]
        made = [name for name in line.results if name is not None and not line.is_out]
        functions.append(f"    return ({', '.join(made)}{',' if len(made) == 1 else ''})")
    return "\n".join([*emitter.heading(), *functions]) + "\n"


def eager_call(line: lines.ExternLine, env: Env) -> str:
    """A call of torch's own operator as a lambda of `called_with(line)` without side effects: it writes into copies of
    its tensors, and draws from a copy of the random generator.
    """
    from minductor.codegen.wrapper.operator_schema import parse_schema

    schema = parse_schema(line.schema)
    given = dict(line.kwargs)
    written = [name for name in line.results if name is not None] if line.is_out else []
    for place, parameter in enumerate(schema.parameters):
        if parameter.is_written:
            written += tensor_names(line.args[place] if place < len(line.args) else given.get(parameter.name))
        if parameter.type == "Generator?":
            given[parameter.name] = Token("generator", "default_generator.clone_state()")
    emitter = _Eager(env, frozenset(written))
    return f"lambda {', '.join(called_with(line))}: {emitter.call(replace(line, kwargs=tuple(given.items())))}"


def called_with(line: lines.ExternLine) -> tuple[str, ...]:
    """The names of the tensors and numbers of a call: tensors in the order of its arguments, tensors that it writes its
    results into, numbers in the order of their names.
    """
    return (*dict.fromkeys(used_tensors(line)), *(number.name for number in numbers_of(line)))


def numbers_of(line: lines.ExternLine) -> tuple[Symbol, ...]:
    """The numbers that a call reads."""
    return tuple(sorted({s for s in symbols_in((line.args, line.kwargs))}, key=lambda s: s.name))


class _Emitter:
    def __init__(self, plan: Plan, env: Env) -> None:
        self.plan = plan
        self.mark = "#" if env.options.provenance else ""
        self.events = env.options.events
        self.verify_memory = env.options.verify_memory
        self.is_streamed = env.target.kind in ("cuda", "hip")
        self.has_status = not env.target.is_gpu  # kernels of a GPU raise errors themselves
        self.scope = self.stream = ""  # the current device, and the device whose stream the text has assigned
        self.region_name = ""  # of the region that is written
        self.names: dict[str, str] = {}  # module-level names -> their values
        self.imports: dict[str, str] = {}  # what is imported besides the header's names -> its module
        if self.verify_memory:
            self.imports["memory_plan_checks"] = "minductor.runtime.launch"
        definitions = [line for line in plan.lines if isinstance(line, lines.KernelLine)]
        self.symbols = {line.id: line.symbol for line in definitions}
        self.bytes: dict[str, Expr] = {}
        self.layouts: dict[str, tuple[tuple[Expr, ...], tuple[Expr, ...]]] = {}
        self.errors = {line.id: line.errors for line in definitions}
        self.written = {line.id: line.written for line in definitions}
        self.nan_asserts = NanAsserts(definitions) if env.options.nan_asserts else None
        self.stale: frozenset[str] = frozenset()  # the storages that the text fills with zeros
        self.has_graphs = env.options.cudagraphs and bool(plan.partitions)
        self.functions: list[str] = []  # the lines of the functions of partitions
        self.passes_all = False  # `call` passes its arguments to the only partition as they are
        self.kept: Mapping[str, int] = {}  # `PartitionFunction.kept` of the one that is printed
        self.variants: list[str] = []  # the lines of the functions that run variants
        self.dispatched: dict[str, str] = {}  # by the digest of a dispatch the function that it calls
        self.places: list[
            tuple[str, ...]
        ] = []  # the ATen nodes of calls that may fail; the loader puts the user's lines there

    def module(self) -> Iterator[str]:
        functions = [text for region in self.plan.regions for text in self.region(region)]
        body = list(self.body(self.plan))
        functions = [*self.variants, *functions, *self.functions]
        yield from self.heading()
        yield from (f"{symbol} = kernels({symbol!r})" for symbol in self.symbols.values())
        failing = {self.symbols[name]: errors for name, errors in self.errors.items() if errors and self.has_status}
        if failing:
            yield "errors = {"
            yield from (f"    {symbol!r}: {errors!r}," for symbol, errors in failing.items())
            yield "}"
        if self.places:
            yield f"places = {self.places!r}"
        yield from functions
        yield from self.opening(self.plan, "call", "args")
        names = [given.name for given in self.plan.inputs]
        if names and not self.passes_all:
            yield f"    {', '.join(names)}{',' if len(names) == 1 else ''} = args"
        if not self.passes_all:
            yield "    args.clear()"
        yield from body

    def heading(self) -> Iterator[str]:
        """The imports, and module-level names for operators and dtypes."""
        yield HEADER + "".join(f"from {module} import {name}\n" for name, module in self.imports.items())
        yield from (f"{name} = {value}" for name, value in self.names.items())

    def region(self, plan: Plan) -> Iterator[str]:
        """A region as a function of its inputs, after the regions inside it."""
        for inner in plan.regions:
            yield from self.region(inner)
        yield from self.opening(plan, plan.name, *(given.name for given in plan.inputs))
        yield from self.body(plan)

    def opening(self, plan: Plan, name: str, *parameters: str) -> Iterator[str]:
        """The head of a function. With `verify_memory` it has a parameter `life`, which its decorator passes."""
        if self.verify_memory:
            yield from ("", *wrapper_memory_checks.table(f"{name}_lives", plan.storages))
        yield from ("", "")
        if self.verify_memory:
            yield f"@memory_plan_checks.watched({name}_lives, {self.verify_memory!r}, events)"
            parameters = (*parameters, "life")
        yield f"def {name}({', '.join(parameters)}):"

    def body(self, plan: Plan) -> Iterator[str]:
        """The lines of one function."""
        made = [line for line in plan.lines if isinstance(line, lines.AllocateLine | lines.ReuseLine)]
        self.layouts = {line.name: (line.size, line.stride) for line in made}
        self.bytes = {storage.name: storage.bytes for storage in plan.storages}
        if self.nan_asserts:
            self.stale = stale(lines.lines_with_groups(plan), self.written)
        self.region_name = "" if plan is self.plan else plan.name
        self.scope = self.stream = ""
        yield from self.count_threads(plan.lines)
        if self.verify_memory:
            yield f"    {wrapper_memory_checks.begin(plan)}"
        has_functions = self.has_graphs and plan is self.plan
        functions: Mapping[int, PartitionFunction] = partition_functions(plan) if has_functions else {}
        yield from self.block(plan.lines, {storage.name for storage in plan.storages}, functions)

    def count_threads(self, block: Sequence[Line]) -> Iterator[str]:
        """The line that assigns the number of threads, in a function that launches kernels for a CPU."""
        if not self.is_streamed and any(isinstance(line, lines.LaunchLine | lines.DispatchLine) for line in block):
            yield "    n_threads = threads.count()"

    def block(
        self, block: Sequence[Line], stored: Collection[str], functions: Mapping[int, PartitionFunction]
    ) -> Iterator[str]:
        """The statements of neighbouring lines; `functions`: as `partition_functions` gives them."""
        indent = "    "
        number = 0
        while number < len(block):
            line = block[number]
            if isinstance(line, lines.ScopeEndLine):
                indent = indent[4:]
            yield from (f"{indent}{text}" for text in self.watched(line, stored))
            if isinstance(line, lines.DeviceScopeLine):
                indent += "    "
            number += 1
            if function := functions.get(number - 1):
                yield from (f"{indent}{text}" for text in self.partition_call(function, stored))
                number = function.end

    def partition_call(self, function: PartitionFunction, stored: Collection[str]) -> Iterator[str]:
        """The call of a partition's function, which joins the module."""
        scope, self.stream, self.kept = self.scope, "", function.kept
        given = ", ".join((*function.tensors, *function.numbers))
        results = ", ".join(function.results)
        comma = "," * (len(function.results) == 1)
        inner = [*self.count_threads(function.body), *self.block(function.body, stored, {})]
        self.scope, self.stream, self.kept = scope, "", {}
        self.functions += ["", "", f"def {function.name}({given}):", *inner, f"    return ({results}{comma})"]
        self.functions += ["", "", *recorded(function)]
        for line in function.above:
            yield from self.line(line)
        passes_all = function.takes_all and not self.verify_memory
        self.passes_all |= passes_all
        given = "*args" if passes_all else given
        yield f"{results}{comma}{' = ' if results else ''}captured_{function.number}({given})"
        if passes_all:
            yield "args.clear()"
        elif function.dropped:
            yield f"del {', '.join(function.dropped)}"

    def watched(self, line: Line, stored: Collection[str]) -> Iterator[str]:
        """The statements of a line; with `verify_memory`, between the statements that report it."""
        if not self.verify_memory:
            yield from self.line(line)
            return
        yield from wrapper_memory_checks.before(line, self.symbols)
        yield from self.line(line)
        yield from wrapper_memory_checks.after(line, stored)

    def line(self, line: Line) -> Iterator[str]:
        match line:
            case lines.LaunchLine():
                yield from self.launch(line)
            case lines.DispatchLine():
                yield from self.dispatch(line)
            case lines.ExternLine():
                yield from self.extern(line)
            case lines.AllocateLine():
                yield from self.allocate(line)
            case lines.ReuseLine():
                yield from self.reuse(line)
            case lines.ViewLine(name, of, _, size, stride, offset):
                yield f"{name} = reinterpret({of}, {self.sizes(size)}, {self.sizes(stride)}, {offset})"
            case lines.FreeLine(names):
                yield f"del {', '.join(names)}"
                for name in names:
                    yield from self.event("free", name)
            case lines.SymbolLine(symbol, source):
                yield f"{symbol.name} = {self.source(source)}"
            case lines.LayoutLine(name, size, stride):
                yield f"{name} = laid_out({name}, {self.sizes(size)}, {None if stride is None else self.sizes(stride)})"
            case lines.AssertLine(condition, message, node):
                yield f"if not {self.source(condition) if isinstance(condition, Body) else f'({condition})'}:"
                self.imports["require"] = "minductor.runtime.launch.launch"
                yield f"    require({message!r}{self.place((node,))})"
            case lines.ReturnLine(values):
                inner = ", ".join(self.argument(v) for v in values)
                results = f"({inner}{',' if len(values) == 1 else ''})"
                yield f"return given({results})" if self.functions and not self.region_name else f"return {results}"
            case lines.PartitionLine(number):
                yield from partition_comment(self.plan, number, "#")
            case lines.DeviceScopeLine(device):
                self.scope, self.stream = device, ""
                yield f"with {_current(device)}:"
            case lines.ScopeEndLine():
                self.scope = ""
            case lines.KernelLine() | lines.ConstantLine():
                return
            case _:
                assert_never(line)

    def allocate(self, line: lines.AllocateLine) -> Iterator[str]:
        """An allocation, by torch's fast function for the CPU or the current GPU where there is one."""
        given = f"{self.sizes(line.size)}, {self.sizes(line.stride)}"
        if (last := self.kept.get(line.name)) is not None:
            yield f"{line.name} = empty_result({last}, {given}, {self.dtype(line.dtype)}, {line.device!r})"
        elif line.device == "cpu":
            yield f"{line.name} = empty_strided({given}, {self.dtype(line.dtype)})"
            yield from self.huge_pages(line.name)
        elif line.device == self.scope and self.is_streamed:
            self.imports["empty_strided_cuda"] = "minductor.runtime.launch.launch"
            yield f"{line.name} = empty_strided_cuda({given}, {self.dtype(line.dtype)})"
        else:
            yield f"{line.name} = torch.empty_strided({given}, dtype={self.dtype(line.dtype)}, device={line.device!r})"
        if line.name in self.stale:
            yield f"{line.name}.zero_()"
        yield from self.event("allocate", line.name)

    def huge_pages(self, name: str) -> Iterator[str]:
        """The lines that ask for huge pages below a new CPU tensor, if it is large or may be."""
        size = as_int(self.bytes[name])
        if size is None or size >= LARGE_BYTES:
            self.imports["on_huge_pages"] = "minductor.runtime.launch.launch"
            test = f"if {self.bytes[name]} >= {LARGE_BYTES}: " if size is None else ""
            yield f"{test}on_huge_pages({name})"

    def current_stream(self, device: str) -> Iterator[str]:
        """The line that assigns a device's stream to `stream`, unless the text above has assigned it already."""
        if self.is_streamed and self.stream != device:
            self.stream = device
            self.imports["raw_stream"] = "minductor.runtime.launch.launch"
            number = device.partition(":")[2]
            yield f"stream = raw_stream({number or 'torch.cuda.current_device()'})"

    def launch(self, line: lines.LaunchLine) -> Iterator[str]:
        symbol = self.symbols[line.kernel]
        yield from self.current_stream(line.device)
        args = ", ".join((*line.tensors, *map(str, line.sizes), "stream" if self.is_streamed else "n_threads"))
        tested = self.nan_asserts and self.nan_asserts.tested(line, self.region_name)
        indent = "    " if tested else ""
        if tested:
            yield self.watch(tested)
        yield from (indent + text for text in handle_comment(self.mark, line.handle, line.origins))
        if self.errors[line.kernel] and self.has_status:
            yield f"{indent}if status := {symbol}({args}):"
            yield f"{indent}    fail(errors[{symbol!r}], status{self.place(line.checked)})"
        else:
            yield f"{indent}{symbol}({args})"
        yield from self.event("launch", symbol)

    def watch(self, tested: Tested) -> str:
        """The head of the block around a launch that is tested for NaN and infinity."""
        self.imports["nan_asserts"] = "minductor.runtime.launch"
        written = ", ".join(f"{name!r}: {name}" for name in tested.written)
        read = [*tested.read, *(str(n) if isinstance(n, Expr) else _float(n) for n in tested.numbers)]
        given = f"{tested.kernel!r}, {{{written}}}, [{', '.join(read)}]{self.place(tested.nodes)}"
        return f"with nan_asserts.Watch({given}):"

    def place(self, nodes: tuple[str, ...]) -> str:
        """The last argument of a call that may fail: the user's lines of these ATen nodes. "" if no node is known."""
        if not any(nodes):
            return ""
        if nodes not in self.places:
            self.places.append(nodes)
        return f", places[{self.places.index(nodes)}]"

    def dispatch(self, line: lines.DispatchLine) -> Iterator[str]:
        """The call of the variant that `choose` or `by_size` picks; the functions of the variants join the module.

        Dispatches that do equal work share these functions.
        """
        yield from self.current_stream(line.own.device)
        if line.digest not in self.dispatched:
            name = self.dispatched[line.digest] = f"{self.symbols[line.own.kernel]}_{line.handle}"
            self.variants += self.variant_functions(line, name)
        last = "stream" if self.is_streamed else "n_threads"
        yield from handle_comment(self.mark, line.handle, line.origins)
        yield f"{self.dispatched[line.digest]}({', '.join((*line.tensors, *(size.name for size in line.sizes), last))})"

    def variant_functions(self, line: lines.DispatchLine, name: str) -> Iterator[str]:
        """A function for each variant of a dispatch, and the function `name` that takes one of them."""
        last = "stream" if self.is_streamed else "n_threads"
        given = ", ".join((*line.tensors, *(size.name for size in line.sizes), last))
        scope, stream = self.scope, self.stream
        for option, group in zip(line.choice.options, line.variants, strict=True):
            for own in group:
                if isinstance(own, lines.AllocateLine):
                    self.layouts[own.name] = own.size, own.stride
                    self.bytes[own.name] = storage_bytes(Buffer(own.name, own.dtype, own.size, own.stride))
            yield from ("", "", f"def {name}_{option}({given}):")
            yield from (f"    {text}" for inner in group for text in self.line(inner))
        self.scope, self.stream = scope, stream
        yield from ("", "")
        if line.choice.by_size is not None:
            self.imports["by_size"] = "minductor.runtime.launch.by_size"
            points = line.choice.by_size.points
            taken = "".join(f"{name}_{option}, " for _, option in points)
            sizes = tuple(len(line.tensors) + place for place in lines.size_places(line))
            yield f"{name} = by_size(({taken}), {tuple(point for point, _ in points)}, {sizes})"
            return
        table = ", ".join(f"{option!r}: {name}_{option}" for option in line.choice.options)
        overwritten = tuple(line.tensors.index(tensor) for tensor in line.overwritten)
        results = {line.own.tensors[place] for place in self.written[line.own.kernel]}
        written = tuple(place for place, tensor in enumerate(line.tensors) if tensor in results)
        sizes = tuple(place for place, size in enumerate(line.sizes, len(line.tensors)) if size.kind == "size")
        about = f"{line.digest!r}, {line.choice.affects!r}, {str(line.choice.default)!r}"
        yield f"{name} = choose({about}, {{{table}}}, {overwritten}, {written}, {sizes})"

    def given(self, line: lines.ExternLine) -> Iterator[str]:
        """The arguments of an operator."""
        # torch's operators take any sequence, but many higher-order ones take tuples only
        row = "({})" if line.op.startswith("higher_order.") else "[{}]"
        yield from (self.argument(a, row) for a in line.args)
        yield from (self.keyword(name, value, row) for name, value in line.kwargs)
        if line.is_out:
            yield from (f"out={self.argument(Token('tensor', name))}" for name in line.results if name is not None)

    def call(self, line: lines.ExternLine) -> str:
        return f"{self.called(line)}({', '.join(self.given(line))})"

    def extern(self, line: lines.ExternLine) -> Iterator[str]:
        if line.dtypes:
            yield from handle_comment(self.mark, line.handle, line.origins)
            yield from self.checked(line)
            yield from self.event("extern", line.op)
            return
        call = self.call(line)
        yield from handle_comment(self.mark, line.handle, line.origins)
        if line.is_out or not line.results or all(name is None for name in line.results):
            yield call
        else:
            # a foreach operator returns a list, even of a single tensor
            comma = "," * (len(line.results) == 1 and line.op.startswith("aten._foreach_"))
            yield f"{', '.join(name or '_' for name in line.results)}{comma} = {call}"
        yield from self.event("extern", line.op)

    def checked(self, line: lines.ExternLine) -> Iterator[str]:
        """A call of a custom or higher-order operator, with a check at run time that its results are new tensors."""
        self.imports["result_checks"] = "minductor.runtime.launch"
        check = "result_checks.call_with_copies" if line.op.startswith("higher_order.") else "result_checks.call_custom"
        dtypes = ", ".join(self.dtype(found) if found else "None" for found in line.dtypes)
        call = f"{check}({', '.join((repr(line.op), self.called(line), f'[{dtypes}]', *self.given(line)))})"
        if all(name is None for name in line.results):
            yield call
        else:
            yield f"{', '.join(name or '_' for name in line.results)}{',' * (len(line.results) == 1)} = {call}"

    def reuse(self, line: lines.ReuseLine) -> Iterator[str]:
        same = self.layouts.get(line.old)
        if same == (line.size, line.stride):
            yield f"{line.name} = {line.old}"
        else:
            yield f"{line.name} = reinterpret({line.old}, {self.sizes(line.size)}, {self.sizes(line.stride)}, 0)"
        yield f"del {line.old}"
        if line.name in self.stale:
            yield f"{line.name}.zero_()"
        yield from self.event("reuse", line.name)

    def event(self, kind: str, name: str) -> Iterator[str]:
        if self.events:
            yield f"events.append(({kind!r}, {name!r}))"

    # --- names and values

    def operator(self, op: str) -> str:
        """A module-level name for torch.ops.NAMESPACE.OP.OVERLOAD."""
        if op in SHORT:
            return SHORT[op]
        name = op.replace(".", "_").removesuffix("_default")
        self.names[name] = f"torch.ops.{op}"
        return name

    def called(self, line: lines.ExternLine) -> str:
        """The function of a call: torch's operator, or our function for an operator that takes regions."""
        if not any(isinstance(a, Region) for a in line.args):
            return self.operator(line.op)
        self.imports["control_flow"] = "minductor.runtime.launch"
        return line.op.replace("higher_order", "control_flow")

    def dtype(self, dtype: DType) -> str:
        self.names[dtype.name] = f"torch.{dtype.torch_name}"
        return dtype.name

    def sizes(self, sizes: Iterable[Expr]) -> str:
        texts = [str(size) for size in sizes]
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

    def keyword(self, name: str, value: Argument, row: str) -> str:
        text = self.argument(value, row)
        return f"**{{{name!r}: {text}}}" if keyword.iskeyword(name) else f"{name}={text}"

    @staticmethod
    def source(source: str | lines.SizeOf | Body) -> str:
        match source:
            case lines.SizeOf(tensor, dim, scale, shift):
                size = f"{tensor}.size({dim})" if not shift else f"({tensor}.size({dim}) - {shift})"
                return size if scale == 1 else f"{size} // {scale}"
            case str():
                return source
            case Body(results=(result,)):
                return _scalar(source, result)
            case Body():
                raise ValueError("a size is one number")

    def argument(self, value: Argument, row: str = "[{}]") -> str:
        match value:
            case Token("tensor", name):
                return name
            case Token("external", name):
                return name
            case Token("operator", name):
                return self.operator(name)
            case Region(name, sizes):
                if not sizes:
                    return name
                self.imports["partial"] = "functools"
                return f"partial({', '.join((name, *map(str, sizes)))})"
            case Token("device", name):
                return f"torch.device({name!r})"
            case Token(_, name):
                return f"torch.{name}"
            case Expr():
                return str(value)
            case DType():
                return self.dtype(value)
            case tuple():
                comma = "," * (row == "({})" and len(value) == 1)
                return row.format(", ".join(self.argument(item, row) for item in value) + comma)
            case float():
                return _float(value)
            case View():
                raise ValueError(f"memory left a view in the plan: {value}")
            case _:
                return repr(value)


class _Eager(_Emitter):
    """Writes calls outside of a module: operators and dtypes by full names, and clones of the tensors `written`."""

    def __init__(self, env: Env, written: frozenset[str]) -> None:
        super().__init__(Plan("eager", (), (), ()), env)
        self.written = written

    def operator(self, op: str) -> str:
        return SHORT.get(op, f"torch.ops.{op}")

    def dtype(self, dtype: DType) -> str:
        return f"torch.{dtype.torch_name}"

    def argument(self, value: Argument, row: str = "[{}]") -> str:
        match value:
            case Token("tensor", name) if name in self.written:
                return f"{name}.clone()"
            case _:
                return super().argument(value, row)


# how a body on numbers is written; floor division and remainder are Python's own
_SIGNS: Mapping[str, str] = {
    **{"div": "/", "floordiv": "//", "mod": "%", "pow": "**", "lshift": "<<", "rshift": ">>"},
    **{**INFIX, **BITWISE, "logical_and": "and", "logical_or": "or"},
}
_SCALAR: Mapping[str, str] = {
    **{name: f"({{}} {sign} {{}})" for name, sign in _SIGNS.items()},
    **{name: f"math.{name}({{}})" for name in PYTHON_MATH.split()},
    "maximum": "max({}, {})",
    "minimum": "min({}, {})",
    "neg": "(-{})",
    "abs": "abs({})",
    "logical_not": "(not {})",
    "where": "({1} if {0} else {2})",
    "floor": "float(math.floor({}))",
    "ceil": "float(math.ceil({}))",
    "trunc": "float(math.trunc({}))",
    "round": "float(round({}))",
}
_CASTS: Mapping[str, str] = {"float": "float({})", "int": "int({})", "bool": "bool({})"}


def _scalar(body: Body, position: int) -> str:
    """A value of a body that reads no tensor, as a Python expression."""
    op = body.ops[position]
    match op.attrs:
        case Constant(value):
            return _float(value) if isinstance(value, float) else repr(value)
        case Index(expr):
            return f"({expr})"
        case None if op.name == "cast" and op.dtype is not None and op.dtype.kind in _CASTS:
            return _CASTS[op.dtype.kind].format(_scalar(body, op.args[0]))
        case None if op.name in _SCALAR:
            return _SCALAR[op.name].format(*(_scalar(body, a) for a in op.args))
        case _:
            raise ValueError(f"{op.name} is no operator on numbers")


def _float(value: float) -> str:
    text = repr(value)
    return f"float({text!r})" if text in ("nan", "inf", "-inf") else text


def _current(device: str) -> str:
    """The context that makes a device current. Torch finds a device faster by its number than by its name."""
    kind, _, number = device.partition(":")
    if kind == "cuda" and number:
        return f"torch.cuda.device({number})"
    return f"torch.get_device_module({device!r}).device({device!r})"
