"""The wrapper in C++: one function for the call, one for each region, and under `cudagraphs` one for each partition.

Takes a Plan. Gives one translation unit. Its tensors are `md_Tensor`, which the included header defines: as torch's
tensors (minductor_torch.h), or as memory of its own (minductor_plain.h) for plans that call no operator of torch.
Refuses (NotNative) a plan that needs Python for more than single calls: operators with regions other than `cond`,
`while_loop` and `invoke_subgraph`, numbers that C++ computes differently, several GPUs, `verify_memory`, and on a GPU
`nan_asserts`.

Python makes the calls that torch's C interface does not offer, and records partitions. The text for that, a function
for each handle, stands at the unit's end. Kernels for a CPU are functions that the unit declares. Kernels for a GPU are
records (minductor_cuda.h), which the loader fills in; the function of a plan with launches works on the GPU's current
stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from minductor.codegen.cpp.cpp_text import index_text
from minductor.codegen.operator_spelling import CPP_STORAGE
from minductor.codegen.wrapper import wrapper_cpp_calls
from minductor.codegen.wrapper.handle_comments import handle_comment
from minductor.codegen.wrapper.wrapper_cpp_numbers import FIELDS, TYPES, letter, literal, magnitudes, source, truth
from minductor.codegen.wrapper.wrapper_cpp_partitions import (
    Step,
    outside,
    plan_of,
    recorded_functions,
    result_numbers,
    steps,
)
from minductor.codegen.wrapper.wrapper_nan_asserts import NanAsserts, Tested, stale
from minductor.codegen.wrapper.wrapper_partitions import PartitionFunction, partition_comment, partition_functions
from minductor.codegen.wrapper.wrapper_python import eager_call, numbers_of, python_calls
from minductor.core.dtypes import DType
from minductor.core.errors import NotNative
from minductor.core.expressions.expr import Expr, Symbol
from minductor.core.names import is_identifier
from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import Line, Plan
from minductor.ir.plan.storage_lives import tensor_names as tensors_of
from minductor.ir.plan.storage_lives import used_tensors
from minductor.ir.program.nodes import Argument, Input, Region, Token, symbols_in
from minductor.target import Env

ITEM = "aten._local_scalar_dense.default"


def wrapper_cpp(plan: Plan, env: Env, header: str = "minductor_torch.h") -> str:
    """The C++ unit of a plan's wrapper. It includes `header`, which defines the tensors."""
    if env.target.kind not in ("cpu", "cuda"):
        raise NotNative(f"a wrapper for {env.target.kind}")
    if env.options.verify_memory:
        raise NotNative("the option verify_memory")
    if env.options.nan_asserts and env.target.is_gpu:
        raise NotNative("the option nan_asserts on a GPU")
    return "\n".join(_Emitter(plan, env).unit(header)) + "\n"


def needs_torch(plan: Plan) -> tuple[str, ...]:
    """The operators for which a plan needs torch, in order, each once."""
    calls = (line for line in lines.lines_with_groups(plan) if isinstance(line, lines.ExternLine))
    found = [line.op for line in calls if line.op != ITEM]
    found += [op for region in plan.regions for op in needs_torch(region)]
    return tuple(dict.fromkeys(op for op in found if not op.startswith("higher_order.")))


def needs_python(plan: Plan) -> tuple[str, ...]:
    """The operators that Python calls, in order, each once. A host without Python cannot run such a plan."""
    found: list[str] = []
    for line in lines.lines_with_groups(plan):
        if isinstance(line, lines.ExternLine) and line.op != ITEM and not any(isinstance(a, Region) for a in line.args):
            try:
                wrapper_cpp_calls.call(line, _dtypes(plan))
            except NotNative:
                found.append(line.op)
    found += [op for region in plan.regions for op in needs_python(region)]
    return tuple(dict.fromkeys(found))


class _Emitter:
    """Writes the unit of a plan: declarations, errors, regions, the call, and the description of the graph."""

    def __init__(self, plan: Plan, env: Env) -> None:
        self.plan = plan
        self.env = env
        self.mark = "//" if env.options.provenance else ""
        self.definitions = {line.id: line for line in plan.lines if isinstance(line, lines.KernelLine)}
        self.constants = {line.name: line.number for line in plan.lines if isinstance(line, lines.ConstantLine)}
        self.declared: dict[str, None] = {}  # the declarations of torch's functions that the unit calls
        self.python: list[lines.ExternLine] = []  # the calls that Python makes
        self.nodes: dict[str, None] = {}  # ATen nodes that errors belong to; "+" stands between those of one error
        self.nan_asserts = NanAsserts(self.definitions.values()) if env.options.nan_asserts else None
        self.gpu = _gpu(plan) if env.target.is_gpu else ""
        self.linked: dict[str, None] = {}  # torch's functions for the GPU that the unit calls
        has_graphs = env.options.cudagraphs and bool(plan.partitions)
        self.functions: Mapping[int, PartitionFunction] = partition_functions(plan) if has_graphs else {}

    def unit(self, header: str) -> Iterator[str]:
        regions = [text for region in self.plan.regions for text in self.region(region)]
        parts = [(each, plan_of(each)) for each in self.functions.values()]
        regions += [text for each, part in parts for text in _Function(self, part, each.kept).text(each.name)]
        body = list(_Function(self, self.plan).text("call"))
        yield f'#include "{header}"'
        if self.nan_asserts:
            yield '#include "minductor_finite.h"'
        if self.env.target.is_gpu:
            yield '#include "minductor_cuda.h"'
        yield ""
        yield from self.kernel_records() if self.env.target.is_gpu else self.kernel_declarations()
        yield from self.declared
        if self.env.target.is_gpu:
            yield f"MD_LINKS({', '.join(('MD_LINKS_OF_ALL', *(f'MD_LINKED({name})' for name in self.linked)))})"
        else:
            yield from self.error_tables()
        yield from regions
        yield from body
        yield ""
        takes, gives = _takes(self.plan), _gives(self.plan)
        constants = f'"{" ".join(self.constants)}", {len(self.constants)}'
        yield f'MD_GRAPH("{self.plan.name}", call, "{takes}", "{gives}", {constants})'
        if parts:
            rows = (f'{{"{p.name}", {p.name}, "{_takes(p)}", "{_gives(p)}", "", 0}}' for _, p in parts)
            yield f"MD_PARTITIONS({', '.join(rows)})"
        if self.nodes:
            yield f'MD_NODES("{" ".join(self.nodes)}")'
        if self.python or parts:
            yield ""
            yield "// What only Python can call, by handle."
            yield 'MD_PYTHON(R"python('
            if self.python:
                yield python_calls(self.python, self.env).rstrip("\n")
            yield from recorded_functions(self.functions.values())
            yield ')python")'

    def region(self, plan: Plan) -> Iterator[str]:
        """The function of a region, after the functions of the regions inside it."""
        for inner in plan.regions:
            yield from self.region(inner)
        yield from _Function(self, plan).text(plan.name)
        yield f'static const md_Region {plan.name}_region = {{{plan.name}, "{_takes(plan)}", "{_gives(plan)}"}};'

    def kernel_declarations(self) -> Iterator[str]:
        """The declarations of the kernels."""
        for kernel in self.definitions.values():
            types = [f"{CPP_STORAGE[dtype]}*" for _, dtype in kernel.signature]
            types += ["double" if kind == "real" else "int64_t" for kind in kernel.numbers]
            yield f'extern "C" int64_t {kernel.symbol}({", ".join((*types, "int64_t"))});'

    def kernel_records(self) -> Iterator[str]:
        """The records of the kernels for a GPU, and their names."""
        symbols = [kernel.symbol for kernel in self.definitions.values()]
        yield f"MD_KERNELS({', '.join(f'{{{_quoted(symbol)}}}' for symbol in symbols) or '{nullptr}'})"
        yield from (f"static const md_Kernel& {symbol} = md_kernels[{n}];" for n, symbol in enumerate(symbols))

    def error_tables(self) -> Iterator[str]:
        for kernel in self.definitions.values():
            if kernel.errors:
                yield ""
                yield f"static const md_Error {kernel.symbol}_errors[] = {{"
                yield from (f"    {{{_quoted(kind)}, {_quoted(_format(message))}}}," for kind, message in kernel.errors)
                yield "};"


class _Function:
    """Writes the C++ function of a plan, of one of its regions, or of one of its partitions."""

    def __init__(self, unit: _Emitter, plan: Plan, kept: Mapping[str, int] | None = None) -> None:
        """`kept`: `PartitionFunction.kept`."""
        self.unit = unit
        self.kept = kept or {}
        self.is_outermost = plan is unit.plan
        self.steps = tuple(steps(plan, unit.functions if self.is_outermost else {}))
        self.plan = plan = outside(plan, self.steps)
        made = (n for n in lines.lines_with_groups(plan) if isinstance(n, lines.AllocateLine | lines.ReuseLine))
        self.layouts = {line.name: (line.size, line.stride) for line in made}
        self.dtypes = _dtypes(unit.plan) | _dtypes(plan)
        self.numbers = {symbol.name: symbol for symbol in symbols_in(plan.lines)}
        self.defined: set[str] = set()  # the numbers whose declarations are written
        laid = {line.name for line in plan.lines if isinstance(line, lines.LayoutLine)}
        tensors = [given for given in plan.inputs if given.symbol is None]
        self.lent = {given.name for given in tensors if not given.is_donated and given.name not in laid}
        written = {name: kernel.written for name, kernel in unit.definitions.items()}
        self.stale = stale(lines.lines_with_groups(plan), written) if unit.nan_asserts else frozenset[str]()

    def text(self, name: str) -> Iterator[str]:
        body = [f"  {text}" for step in self.steps for text in self.step(step)]
        inputs = {given.name for given in self.plan.inputs if given.symbol is None}
        for given in self.plan.inputs:  # all other names are our own
            if not is_identifier(given.name) or given.name == "md":
                raise NotNative(f"an input called {given.name!r}")
        tensors = [name for name in self.tensors() if name not in inputs]
        launches = any(isinstance(line, lines.LaunchLine) for line in lines.lines_with_groups(self.plan))
        used = {name for line in self.plan.lines for name in used_tensors(line)} | set(tensors_of(_returned(self.plan)))
        yield ""
        yield f"static bool {name}(md_Call& md, md_Value* md_given, md_Value* md_made) {{"
        for number, given in enumerate(self.plan.inputs):
            yield f"  {self.received(given, number)}"
        for name, number in self.unit.constants.items():
            if name in used - inputs:  # an input of a region may have the same name
                yield f"  const md_Tensor& {name} = md.constants[{number}];"
        if tensors:
            yield f"  md_Tensor {', '.join(tensors)};"
        if self.unit.gpu and (launches or self.is_outermost):
            yield "  md_Scope md_scope;"
            yield f"  MD_TRY(md_scope.enter(md, {_index(self.unit.gpu)}));"
        yield from body
        yield "  return true;"
        yield "}"

    def received(self, given: Input, number: int) -> str:
        """Declares an input under its name."""
        kind = _input_letter(given)
        match kind:
            case "o":
                return f"md_Tensor {given.name}(md_given[{number}].tensor);"
            case "t" if given.name in self.lent:
                return f"md_Lent {given.name}(md_given[{number}].tensor);"
            case "t":
                return f"md_Tensor {given.name}(md_share(md_given[{number}].tensor));"
            case _ if isinstance(given.symbol, Symbol):
                return f"const {TYPES[given.symbol.kind]} {given.name} = md_given[{number}].{FIELDS[kind]};"
            case _:
                return f"const int64_t {given.name} = {given.symbol};"

    def tensors(self) -> dict[str, None]:
        """The names of the tensors that the lines make, in order."""
        made: dict[str, None] = {}
        for line in lines.lines_with_groups(self.plan):
            if isinstance(line, lines.AllocateLine | lines.ReuseLine | lines.ViewLine):
                made[line.name] = None
            elif isinstance(line, lines.ExternLine) and not line.is_out:
                made.update(dict.fromkeys(n for n in line.results if n is not None and not self.is_number(n)))
        functions = (step for step in self.steps if isinstance(step, PartitionFunction))
        return made | dict.fromkeys(name for function in functions for name in function.results)

    def is_number(self, name: str) -> bool:
        return name in self.numbers

    def step(self, step: Step) -> Iterator[str]:
        """The statements of a line, or of the call of a partition's function."""
        if not isinstance(step, PartitionFunction):
            yield from self.line(step)
            return
        numbers = [given.symbol for given in plan_of(step).inputs if isinstance(given.symbol, Symbol)]
        given = [*(f"md_lend({name})" for name in step.tensors), *map(_value, numbers)]
        kinds = "t" * len(step.tensors) + "".join(map(letter, numbers))
        into = ", ".join(f"&{name}" for name in step.results)
        yield f'MD_TRY(md_captured(md, {step.number}, {{{", ".join(given)}}}, "{kinds}", {{{into}}}));'
        if own := [name for name in step.dropped if name not in self.lent]:
            yield " ".join(f"{name}.reset();" for name in own)

    def line(self, line: Line) -> Iterator[str]:
        match line:
            case lines.LaunchLine():
                yield from self.launch(line)
            case lines.DispatchLine():
                yield from self.dispatch(line)
            case lines.ExternLine():
                yield from self.extern(line)
            case lines.AllocateLine(name):
                yield from self.allocate(line)
            case lines.ReuseLine():
                yield from self.reuse(line)
            case lines.ViewLine(name, of, _, size, stride, offset):
                yield f"MD_TRY(md_view(md, {name}, {of}, {_sizes(size)}, {_sizes(stride)}, {index_text(offset)}));"
            case lines.FreeLine(names):
                own = [name for name in names if name not in self.lent]
                if own:
                    yield " ".join(f"{name}.reset();" for name in own)
                for name in names:
                    yield from self.event("free", name)
            case lines.SymbolLine(symbol, what):
                yield f"{self.number(symbol)} = {source(what)};"
            case lines.LayoutLine(name, size, stride):
                if stride is None:
                    yield f"MD_TRY(md_sized(md, {name}, {_sizes(size)}));"
                else:
                    yield f"MD_TRY(md_laid_out(md, {name}, {_sizes(size)}, {_sizes(stride)}));"
            case lines.AssertLine(condition, message, node):
                given = f"{truth(condition)}, {_quoted(message)}, {self.checked(node)}"
                yield f"MD_TRY(md_require(md, {given}));"
            case lines.ReturnLine(values):
                yield from self.give(values)
            case lines.PartitionLine(number):
                yield from self.partition(number)
            case lines.KernelLine() | lines.ConstantLine():
                return
            case lines.DeviceScopeLine() | lines.ScopeEndLine():  # a function has one scope for its one GPU
                return
            case _:
                assert_never(line)

    def partition(self, number: int) -> Iterator[str]:
        """A comment that says whether a CUDA graph can capture the lines below, and if not, why."""
        if self.unit.functions:
            yield from partition_comment(self.unit.plan, number, "//")

    def number(self, symbol: Symbol) -> str:
        """The left side of an assignment to a number: its name, after its type if this is the first assignment."""
        self.numbers[symbol.name] = symbol
        if symbol.name in self.defined:
            return symbol.name
        self.defined.add(symbol.name)
        return f"{TYPES[symbol.kind]} {symbol.name}"

    def checked(self, node: str) -> str:
        """The ATen node that an error belongs to, as a C++ string; the unit lists all these nodes."""
        if node:
            self.unit.nodes[node] = None
        return _quoted(node)

    def allocate(self, line: lines.AllocateLine) -> Iterator[str]:
        given = f"md, {line.name}, md_{line.dtype.torch_name}, {_sizes(line.size)}, {_sizes(line.stride)}"
        if (last := self.kept.get(line.name)) is not None:
            numbers = result_numbers(line)
            kinds = "".join(map(letter, numbers))
            yield f'MD_TRY(md_result(md, {last}, {_lent(numbers)}, "{kinds}", {{&{line.name}}}));'
        elif line.device == "cpu":
            yield f"MD_TRY(md_empty({given}));"
        elif line.device == self.unit.gpu:
            yield f"MD_TRY(md_empty_cuda({given}, {_index(line.device)}));"
        else:
            raise NotNative(f"memory of {line.device}")
        yield from self.zero(line.name)
        yield from self.event("allocate", line.name)

    def gpu_launch(self, line: lines.LaunchLine) -> Iterator[str]:
        """The line that launches a kernel on the GPU. An error names the user's lines."""
        kernel = self.unit.definitions[line.kernel]
        if line.device != self.unit.gpu:
            raise NotNative(f"a launch on {line.device}")
        kinds = zip(line.sizes, kernel.numbers, strict=True)
        numbers = (f"md_number(({'double' if kind == 'real' else 'int64_t'}){index_text(n)})" for n, kind in kinds)
        given = ", ".join((*(f"md_lend({name})" for name in line.tensors), *numbers))
        nodes = self.checked("+".join(dict.fromkeys(origin.node for origin in line.origins if origin.node)))
        yield from handle_comment(self.unit.mark, line.handle, line.origins)
        yield f"MD_TRY({kernel.symbol}(md, md_scope, {{{given}}}, {nodes}));"
        yield from self.event("launch", kernel.symbol)

    def launch(self, line: lines.LaunchLine) -> Iterator[str]:
        if self.unit.gpu:
            yield from self.gpu_launch(line)
            return
        kernel = self.unit.definitions[line.kernel]
        pointers = (
            f"{name}.data<{CPP_STORAGE[dtype]}>()"
            for name, (_, dtype) in zip(line.tensors, kernel.signature, strict=True)
        )
        call = f"{kernel.symbol}({', '.join((*pointers, *map(index_text, line.sizes), 'md.threads'))})"
        if kernel.errors:
            nodes = ", ".join(map(self.checked, line.checked))
            call = f"MD_TRY(md_status(md, {call}, {kernel.symbol}_errors, {{{nodes}}}))"
        asserts, region = self.unit.nan_asserts, "" if self.is_outermost else self.plan.name
        tested = asserts and asserts.tested(line, region)
        comment = tuple(handle_comment(self.unit.mark, line.handle, line.origins))
        yield from self.watched(tested, comment, call) if tested else (*comment, f"{call};")
        yield from self.event("launch", kernel.symbol)

    def dispatch(self, line: lines.DispatchLine) -> Iterator[str]:
        """A branch for each variant, by the sizes of the call. A choice that is measured was made before."""
        rule = line.choice.by_size
        if rule is None:
            yield from (text for inner in lines.selected(line, line.choice.default) for text in self.line(inner))
            return
        points = ", ".join(str(size) for point, _ in rule.points for size in point)
        yield from handle_comment(self.unit.mark, line.handle, line.origins)
        yield f"switch (md_nearest({{{', '.join(rule.symbols)}}}, {{{points}}})) {{"
        for option in line.choice.options:
            cases = " ".join(f"case {number}:" for number, (_, taken) in enumerate(rule.points) if taken == option)
            yield f"  {cases} {{  // {option}"
            yield from (f"    {text}" for inner in lines.selected(line, option) for text in self.line(inner))
            yield from ("    break;", "  }")
        yield "}"

    def watched(self, tested: Tested, comment: tuple[str, ...], call: str) -> Iterator[str]:
        """The lines of a launch that is tested for NaN and infinity."""
        results = [f'{{"{name}", {name}, {literal(name in tested.read)}}}' for name in tested.written]
        read = ", ".join(f"&{name}" for name in tested.read if name not in tested.written)
        numbers = ", ".join(index_text(n) if isinstance(n, Expr) else literal(n) for n in tested.numbers)
        node = self.checked("+".join(tested.nodes))
        yield "{"
        yield f"  const md_Stored md_results[] = {{{', '.join(results)}}};"
        yield from (f"  {text}" for text in (*comment, f"{call};"))
        yield f'  MD_TRY(md_finite(md, "{tested.kernel}", md_results, {{{read}}}, {{{numbers}}}, {node}));'
        yield "}"

    def zero(self, name: str) -> Iterator[str]:
        """The line that fills a storage with zeros whose old contents could look like results."""
        if name in self.stale:
            yield f"md_zero({name});"

    def reuse(self, line: lines.ReuseLine) -> Iterator[str]:
        if self.layouts.get(line.old) == (line.size, line.stride):
            yield f"{line.name} = {line.old}.take();"
        else:
            size, stride = _sizes(line.size), _sizes(line.stride)
            yield f"MD_TRY(md_view(md, {line.name}, {line.old}, {size}, {stride}, 0));"
            yield f"{line.old}.reset();"
        yield from self.zero(line.name)
        yield from self.event("reuse", line.name)

    def extern(self, line: lines.ExternLine) -> Iterator[str]:
        match line.op, line.args:
            case "higher_order.cond", (Token("tensor"), *_):
                yield f"bool md_truth{line.handle} = false;"
            case _:
                pass
        yield from handle_comment(self.unit.mark, line.handle, line.origins)
        if line.op == ITEM:
            yield from self.item(line)
        elif any(isinstance(argument, Region) for argument in line.args):
            yield from self.control(line)
        else:
            yield from self.operator(line)
        yield from self.event("extern", line.op)

    def operator(self, line: lines.ExternLine) -> Iterator[str]:
        """The lines that call an operator of torch. A failed call is repeated in eager, which raises its exception."""
        try:
            text, declaration = wrapper_cpp_calls.call(line, self.dtypes)
            eager = ", ".join((_quoted(eager_call(line, self.unit.env)), *_given_eager(line)))
        except NotNative:
            yield f"MD_TRY({self.by_python(line)});"
            return
        if declaration:
            self.unit.declared[declaration] = None
            self.unit.linked.update(dict.fromkeys(wrapper_cpp_calls.linked(declaration)))
        yield f"MD_CALL({text},"
        yield f"        {eager});"

    def item(self, line: lines.ExternLine) -> Iterator[str]:
        """Reads a number out of a tensor, unless nothing uses the number."""
        (tensor,), (name,) = line.args, line.results
        if name is not None and name in self.numbers and isinstance(tensor, Token):
            symbol = self.numbers[name]
            if (declared := self.number(symbol)) != name:
                yield f"{declared};"
            yield f"MD_TRY(md_read(md, {tensor.name}, {name}));"

    def by_python(self, line: lines.ExternLine) -> str:
        """The text that calls an operator through Python, with its arguments and the variables for its results."""
        self.unit.python.append(line)
        tensors, numbers = dict.fromkeys(used_tensors(line)), numbers_of(line)
        given = [*(f"md_lend({name})" for name in tensors), *map(_value, numbers)]
        names = [name for name in line.results if name is not None and not line.is_out]
        if any(self.is_number(name) for name in names):
            raise NotNative(f"a number that {line.op} returns")
        into = ", ".join(f"&{name}" for name in names)
        return f'md_python(md, {line.handle}, {{{", ".join(given)}}}, "{_kinds(line)}", {{{into}}})'

    def control(self, line: lines.ExternLine) -> Iterator[str]:
        """The lines of an operator that calls regions. Each result is new memory, whose layout later lines check."""
        if any(name is not None and self.is_number(name) for name in line.results):
            raise NotNative(f"a number that {line.op} returns")
        into = ", ".join(f"&{name}" if name else "nullptr" for name in line.results)
        match line.op, line.args:
            case "higher_order.cond", (asked, Region() as yes, Region() as no, *rest):
                given = rest[0] if rest and isinstance(rest[0], tuple) else ()
                if isinstance(asked, Token):
                    yield f"MD_TRY(md_read(md, {asked.name}, md_truth{line.handle}));"
                yield f"if ({self.truth(asked, line)}) {{"
                yield f"  MD_TRY(md_invoke(md, {_region(yes, given)}, {{{into}}}));"
                yield "} else {"
                yield f"  MD_TRY(md_invoke(md, {_region(no, given)}, {{{into}}}));"
                yield "}"
            case "higher_order.while_loop", (Region() as going, Region() as step, tuple(carried), tuple(extra)):
                regions = f"{_region(going, ())}, {_region(step, ())}"
                yield f"MD_TRY(md_while(md, {regions}, {_lent(carried)}, {_lent(extra)}, {{{into}}}));"
            case "higher_order.invoke_subgraph", (Region() as called, _, *operands):
                yield f"MD_TRY(md_invoke(md, {_region(called, operands)}, {{{into}}}));"
            case _:
                raise NotNative(line.op)

    @staticmethod
    def truth(asked: Argument, line: lines.ExternLine) -> str:
        """The condition of the `cond` in a line, as a C++ expression; what a tensor says has been read."""
        match asked:
            case Token("tensor", _):
                return f"md_truth{line.handle}"
            case bool():
                return literal(asked)
            case Expr():
                return index_text(asked)
            case _:
                raise NotNative(f"a condition {asked!r}")

    def give(self, values: Sequence[Argument]) -> Iterator[str]:
        """The lines that return the results. A tensor that is returned once gives up its handle."""
        names = [value.name for value in values if isinstance(value, Token)]
        for place, value in enumerate(values):
            kind = _output_letter(value)
            match value:
                case Token("tensor", name):
                    is_own = names.count(name) == 1 and name not in self.lent and name not in self.unit.constants
                    yield f"md_made[{place}].tensor = {f'{name}.give()' if is_own else f'md_share({name}.handle)'};"
                case None:
                    pass
                case Expr():
                    for most in magnitudes(value):
                        yield f"MD_TRY(md_fits(md, {most}));"
                    yield f"md_made[{place}].{FIELDS[kind]} = {index_text(value)};"
                case bool() | int() | float():
                    yield f"md_made[{place}].{FIELDS[kind]} = {literal(value)};"
                case _:
                    raise NotNative(f"a result {value!r}")

    def event(self, kind: str, name: str) -> Iterator[str]:
        if self.unit.env.options.events:
            yield f'md_event(md, "{kind}", "{name}");'


def _gpu(plan: Plan) -> str:
    """The GPU on which a plan and its regions launch and allocate, such as "cuda:0"; "" if there is none."""
    found = dict.fromkeys(_devices(plan))
    if len(found) > 1:
        raise NotNative(f"several GPUs ({', '.join(found)})")
    return next(iter(found), "")


def _devices(plan: Plan) -> Iterator[str]:
    for line in lines.lines_with_groups(plan):
        if isinstance(
            line, lines.AllocateLine | lines.LaunchLine | lines.DeviceScopeLine | lines.ExternLine
        ) and line.device not in ("", "cpu"):
            yield line.device
    for region in plan.regions:
        yield from _devices(region)


def _index(device: str) -> str:
    """The number of a GPU as text; a package learns it from its loader."""
    return device.partition(":")[2] or "md_gpu"


def _dtypes(plan: Plan) -> dict[str, DType]:
    """The dtypes of the tensors for which the plan names one."""
    made: dict[str, DType] = {}
    for line in lines.lines_with_groups(plan):
        if isinstance(line, lines.AllocateLine | lines.ReuseLine | lines.ViewLine):
            made[line.name] = line.dtype
    return made


def _returned(plan: Plan) -> tuple[Argument, ...]:
    return next(line.values for line in plan.lines if isinstance(line, lines.ReturnLine))


def _takes(plan: Plan) -> str:
    """A letter for each input."""
    return "".join(map(_input_letter, plan.inputs))


def _gives(plan: Plan) -> str:
    """A letter for each result."""
    return "".join(map(_output_letter, _returned(plan)))


def _region(region: Region, operands: Iterable[Argument]) -> str:
    """A region and its arguments: sizes, then operands."""
    return f"{region.name}_region, {_lent((*region.sizes, *operands))}"


def _lent(values: Iterable[Argument]) -> str:
    return f"{{{', '.join(map(_value, values))}}}"


def _value(value: Argument) -> str:
    """A value as an argument of a region or of Python."""
    match value:
        case Token("tensor", name):
            return f"md_lend({name})"
        case Symbol(name) if value.kind == "real":
            return f"md_number({name})"
        case Expr():
            return f"md_number((int64_t)({index_text(value)}))"
        case bool() | int():
            return f"md_number((int64_t){literal(int(value))})"
        case float():
            return f"md_number({literal(value)})"
        case _:
            raise NotNative(f"the argument {value!r} of a region")


def _kinds(line: lines.ExternLine) -> str:
    """A letter for each tensor and number that a call by Python takes."""
    return "t" * len(dict.fromkeys(used_tensors(line))) + "".join(map(letter, numbers_of(line)))


def _given_eager(line: lines.ExternLine) -> Iterator[str]:
    """The letters, the tensors and the numbers of a call, as arguments of a variadic function."""
    yield f'"{_kinds(line)}"'
    yield from (f"{name}.handle" for name in dict.fromkeys(used_tensors(line)))
    for number in numbers_of(line):
        yield number.name if letter(number) == "d" else f"(int64_t){number.name}"


def _input_letter(given: Input) -> str:
    """The letter of an input. An input that is constant, or that the program ignores, is not read."""
    if given.symbol is None:
        return "o" if given.is_donated else "t"
    return letter(given.symbol) if isinstance(given.symbol, Symbol) else "n"


def _output_letter(value: Argument) -> str:
    """The letter of an output."""
    match value:
        case Token("tensor", _):
            return "t"
        case None:
            return "n"
        case bool():
            return "b"
        case float():
            return "d"
        case Symbol():
            return letter(value)
        case int() | Expr():
            return "i"
        case _:
            raise NotNative(f"a result {value!r}")


def _sizes(sizes: Iterable[Expr]) -> str:
    return f"{{{', '.join(map(index_text, sizes))}}}"


def _quoted(text: str) -> str:
    """A C string literal; characters outside of plain ASCII are octal numbers."""
    shown = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(shown)}"'


def _format(message: str) -> str:
    """A message of ir/program/signature.py as a format of printf. The value is a string there, since it may be
    unknown.
    """
    return message.replace("%", "%%").format(value="%s", size="%lld")
