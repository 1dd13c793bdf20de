"""The rules of the house, each a function of one file.

Takes a file's path below the root and its text. Gives (what, where and why) for each violation. Refuses nothing: a
text that does not parse raises SyntaxError, which is red enough.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES, MAX_FUNCTION_LINES = 700, 60


@dataclass(frozen=True, slots=True)
class Violation:
    what: str  # the name by which exceptions.py may excuse it
    why: str


@dataclass(frozen=True, slots=True)
class Layer:
    """What the files of one layer may import besides the standard library and their own folder."""

    ours: tuple[str, ...]
    others: tuple[str, ...] = ()
    has_effects: bool = False


DATA = ("minductor.ir", "minductor.core", "minductor.options", "minductor.target")
SHARED = (*DATA, "minductor.analysis", "minductor.cost")
PHASES = ("minductor.frontend", "minductor.passes", "minductor.codegen", "minductor.runtime")
TOP = Layer(
    ours=("minductor",),
    others=("torch", "sympy", "triton", "filelock", "numpy", "matplotlib", "networkx", "pygments"),
    has_effects=True,
)

# By the longest prefix of a file's module name.
LAYERS = {
    "minductor": TOP,
    "minductor.core": Layer(()),
    "minductor.ir": Layer(("minductor.core",)),
    "minductor.options": Layer(("minductor.core",)),
    "minductor.target": Layer(("minductor.core",)),
    "minductor.frontend": Layer((*SHARED, "minductor.heuristics"), ("torch", "sympy")),
    "minductor.analysis": Layer(DATA),
    "minductor.cost": Layer((*DATA, "minductor.analysis")),
    "minductor.heuristics": Layer(SHARED),
    "minductor.passes": Layer((*SHARED, "minductor.heuristics")),
    "minductor.codegen": Layer(SHARED),
    "minductor.runtime": Layer(SHARED, ("torch", "triton", "filelock"), has_effects=True),
    "pytest_plugin": Layer(("minductor",), ("torch", "pytest"), has_effects=True),
    "pytest_plugin.strategies": Layer(("minductor", "pytest_plugin"), ("torch", "hypothesis")),
}
# What several stages of the compiler use; every stage may import it.
SHARED_BY_STAGES = ("minductor.passes.rewriting",)
EFFECTS = ("os", "subprocess", "threading", "time", "multiprocessing", "concurrent", "ctypes", "socket", "tempfile")
EAGER_TORCH = ("minductor.frontend", "minductor.runtime", "minductor.bench", "minductor.driver")
FORBIDDEN_NAMES = ("util", "utils", "common", "helper", "helpers", "misc", "base")


def source_files() -> tuple[str, ...]:
    """Every Python file of the two packages, as paths below the root."""
    folders = (ROOT / "minductor", ROOT / "pytest_plugin")
    return tuple(sorted(str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.py")))


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def layer_of(module: str) -> tuple[str, Layer]:
    return max((row for row in LAYERS.items() if _is_within(module, row[0])), key=lambda row: len(row[0]))


@lru_cache(maxsize=1024)
def _tree(text: str) -> ast.Module:
    """All rules read the same tree of a file, and none of them writes it."""
    return ast.parse(text)


@lru_cache(maxsize=1024)
def _nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(text)))


def _functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in _nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imported_names(node: ast.AST, path: str) -> Iterator[str]:
    """The modules that an import statement names; `from a import b` gives a.b, of which every check takes prefixes."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = module_name(path) if path.endswith("__init__.py") else module_name(path).rpartition(".")[0]
        start = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
        origin = ".".join(part for part in (start, node.module) if part)
        yield from (f"{origin}.{alias.name}" for alias in node.names)


def _at_import_time(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: not the bodies of functions, nor what only a checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            continue
        yield node
        yield from _at_import_time(node)


def layers(path: str, text: str) -> Iterator[Violation]:
    """No file imports a higher layer, no phase (frontend, passes, codegen, runtime) imports another phase."""
    module = module_name(path)
    name, layer = layer_of(module)
    for node in _nodes(text):
        for imported in imported_names(node, path):
            top = imported.partition(".")[0]
            if top in sys.stdlib_module_names:
                continue
            allowed = any(_is_within(imported, other) for other in (*layer.ours, *layer.others))
            if not allowed and not (name != "minductor" and _is_within(imported, name)):
                what = ".".join(imported.split(".")[:2]) if top == "minductor" else top
                yield Violation(what, f"line {node.lineno}: {name} may not import {imported}")


def separate_stages(path: str, text: str) -> Iterator[Violation]:
    """A stage's package imports no other stage's package: what two stages need is in analysis, cost or rewriting."""
    module = module_name(path)
    own = ".".join(module.split(".")[:3])
    if not module.startswith("minductor.passes."):
        return
    for node in ast.walk(ast.parse(text)):
        for imported in imported_names(node, path):
            others = _is_within(imported, "minductor.passes") and not _is_within(imported, own)
            if others and not any(_is_within(imported, shared) for shared in SHARED_BY_STAGES):
                yield Violation(imported, f"line {node.lineno}: {own} may not import {imported}")


def peer(path: str, text: str) -> Iterator[Violation]:
    """TorchInductor is our peer, not our engine: only the plugin's adapter and nothing of minductor may import it."""
    if path.startswith("pytest_plugin/adapters/"):
        return
    for node in _nodes(text):
        names = [*imported_names(node, path), *([node.attr] if isinstance(node, ast.Attribute) else [])]
        if any(_is_within(name, "torch._inductor") or name == "_inductor" for name in names):
            yield Violation("torch._inductor", f"line {node.lineno}: nothing here may use torch._inductor")


def lines_only(path: str, text: str) -> Iterator[Violation]:
    """A wrapper emitter reads the lines of a plan: the kernels beside them stay within the compiler."""
    if not path.startswith("minductor/codegen/wrapper/wrapper_"):
        return
    for node in _nodes(text):
        if isinstance(node, ast.Attribute) and node.attr == "kernels":
            yield Violation(
                "kernels", f"line {node.lineno}: a line says what an emitter needs, {node.attr} is not read"
            )
        for imported in imported_names(node, path):
            if imported == "minductor.ir.program.nodes.Kernel" or _is_within(
                imported, "minductor.ir.program.signature"
            ):
                yield Violation(imported, f"line {node.lineno}: {imported} is of kernels, and an emitter reads lines")


def lazy_top(path: str, text: str) -> Iterator[Violation]:
    """The top layer imports a phase inside the function that uses it; only the driver and bench start with torch."""
    module = module_name(path)
    if layer_of(module)[0] not in ("minductor", "pytest_plugin"):
        return
    for node in _at_import_time(_tree(text)):
        for imported in imported_names(node, path):
            is_phase = any(_is_within(imported, phase) for phase in PHASES)
            heavy = imported.partition(".")[0] in ("torch", "triton", "sympy", "matplotlib")
            if is_phase or (heavy and not any(_is_within(module, name) for name in EAGER_TORCH)):
                yield Violation(imported, f"line {node.lineno}: import {imported} in the function that uses it")


def effects(path: str, text: str) -> Iterator[Violation]:
    """Only runtime and the top layer use files, processes, threads and clocks. Options.parse reads the environment."""
    module = module_name(path)
    if layer_of(module)[1].has_effects and not _is_within(module, "minductor.tracing.trace"):
        return
    for node in _nodes(text):
        for imported in imported_names(node, path):
            top = imported.partition(".")[0]
            if top in EFFECTS and (module, top) != ("minductor.options", "os"):
                yield Violation(top, f"line {node.lineno}: {top} belongs to runtime and the top layer")
    if module == "minductor.options":
        parse = next((function for function in _functions(text) if function.name == "parse"), None)
        inside = set(map(id, ast.walk(parse))) if parse else set[int]()
        for node in _nodes(text):
            if isinstance(node, ast.Name) and node.id == "os" and id(node) not in inside:
                yield Violation("os", f"line {node.lineno}: only Options.parse reads the environment")


def sizes(path: str, text: str) -> Iterator[Violation]:
    """A file and a function fit into a head."""
    lines = len(text.splitlines())
    if lines > MAX_FILE_LINES:
        yield Violation("file", f"{lines} lines, {MAX_FILE_LINES} at most")
    for function in _functions(text):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield Violation(function.name, f"line {function.lineno}: {length} lines, {MAX_FUNCTION_LINES} at most")


def no_global(path: str, text: str) -> Iterator[Violation]:
    """No function writes a module's names."""
    for node in _nodes(text):
        if isinstance(node, ast.Global):
            yield Violation(node.names[0], f"line {node.lineno}: global {', '.join(node.names)}")


MUTABLE_CALLS = (
    *("dict", "list", "set", "bytearray", "deque", "defaultdict", "Counter", "OrderedDict", "local"),
    *("WeakValueDictionary", "WeakKeyDictionary", "WeakSet", "Lock", "RLock", "ContextVar", "count"),
)
READ_ONLY = ("Mapping", "Sequence", "Collection", "Iterable", "tuple", "frozenset", "Set", "AbstractSet")


def _is_mutable(value: ast.expr | None) -> bool:
    match value:
        case ast.Dict() | ast.List() | ast.Set() | ast.DictComp() | ast.ListComp() | ast.SetComp():
            return True
        case ast.GeneratorExp():
            return True
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name in MUTABLE_CALLS
        case ast.Call(func=ast.Subscript(value=ast.Name(id=name))):
            return name in MUTABLE_CALLS
        case _:
            return False


def _is_read_only(annotation: ast.expr) -> bool:
    match annotation:
        case ast.Subscript(value=ast.Name(id="Final" | "ClassVar"), slice=inner):
            return _is_read_only(inner)
        case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name):
            return name in READ_ONLY
        case _:
            return False


def mutable_state(path: str, text: str) -> Iterator[Violation]:
    """A module or class holds constants; a table says so by its type: `RULES: Mapping[...] = {...}`."""
    for node in _at_import_time(_tree(text)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name != "__all__" and _is_mutable(value):
                yield Violation(
                    name, f"line {node.lineno}: {name} can be written; declare it Mapping or make it a tuple"
                )
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value) if _is_mutable(value):
                if not _is_read_only(annotation):
                    yield Violation(name, f"line {node.lineno}: {name} can be written; declare it Mapping or a tuple")
            case _:
                pass


def bounded_memo(path: str, text: str) -> Iterator[Violation]:
    """A memo of a function with parameters has a bound, or it is a leak."""
    for function in _functions(text):
        arguments = function.args
        if not (arguments.posonlyargs or arguments.args or arguments.kwonlyargs or arguments.vararg):
            continue
        for decorator in map(ast.unparse, function.decorator_list):
            if re.fullmatch(r"(functools\.)?(cache|lru_cache\((maxsize=)?None\))", decorator):
                yield Violation(function.name, f"line {function.lineno}: use lru_cache(maxsize=...)")


def quiet_import(path: str, text: str) -> Iterator[Violation]:
    """Importing a module defines names and does nothing else."""
    for node in _tree(text).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Expr | ast.For | ast.While | ast.With | ast.Delete) and not is_docstring:
            yield Violation(
                ast.unparse(node).partition("(")[0], f"line {node.lineno}: runs when the module is imported"
            )


def names(path: str, text: str) -> Iterator[Violation]:
    """A file is named after what it holds."""
    for part in Path(path).with_suffix("").parts:
        if part.lstrip("_") in FORBIDDEN_NAMES:
            yield Violation(part, f"{part!r} says nothing about the content")


def docstring(path: str, text: str) -> Iterator[Violation]:
    """A file of minductor opens with what it takes and gives."""
    tree = _tree(text)
    if not tree.body or not path.startswith("minductor/"):
        return
    opening = (ast.get_docstring(tree) or "").lower()
    only_docstring = len(tree.body) == 1 and bool(opening)
    missing = [word for word in ("takes", "gives") if not re.search(rf"\b{word}\b", opening)]
    if missing and not only_docstring:
        yield Violation("docstring", f"the docstring does not say what the file {' and '.join(missing)}")


def no_flags(path: str, text: str) -> Iterator[Violation]:
    """A bool is passed by name: f(x, True) says nothing at the call."""
    if path.startswith("minductor/frontend/rules/"):  # a rule's parameters are those of its ATen op, in their order
        return
    for function in _functions(text):
        if function.name.startswith("__"):
            continue
        positional = [*function.args.posonlyargs, *function.args.args]
        defaults = [None] * (len(positional) - len(function.args.defaults)) + function.args.defaults
        for argument, default in zip(positional, defaults, strict=True):
            is_bool = argument.annotation is not None and ast.unparse(argument.annotation) == "bool"
            if is_bool or (isinstance(default, ast.Constant) and isinstance(default.value, bool)):
                yield Violation(
                    f"{function.name}.{argument.arg}", f"line {function.lineno}: make {argument.arg} keyword-only"
                )


def finished(path: str, text: str) -> Iterator[Violation]:
    """Nothing is left for later."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError(\(\))?\s*$", line):
            yield Violation(line.strip(), f"line {number}: {line.strip()}")


def no_see_above(path: str, text: str) -> Iterator[Violation]:
    """A docstring or comment says what it means where it stands."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\b(see|as) above\b", line, re.IGNORECASE):
            yield Violation("above", f"line {number}: {line.strip()}")


def users_lines(path: str, text: str) -> Iterator[Violation]:
    """A warning points at the user's line, which `minductor.core.warn` finds and no number of frames tells."""
    for node in _nodes(text):
        is_call = isinstance(node, ast.Call) and ast.unparse(node.func) in ("warnings.warn", "warnings.warn_explicit")
        if is_call and path != "minductor/core/warn.py":
            yield Violation("warnings", f"line {node.lineno}: minductor.core.warn points at the user's line")


def no_guesses(path: str, text: str) -> Iterator[Violation]:
    """`estimate` alone makes a number of an unknown size, so that all stages count with the same one."""
    if not path.startswith("minductor/") or path == "minductor/core/expressions/hints.py":
        return
    for node in _nodes(text):
        match node:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                guessed, known = (body, orelse) if ast.unparse(test).count(" is None") else (orelse, body)
                names = tuple(name for name in _tested_for_none(test) if name in _arithmetic(known))
                is_guess = _is_number(guessed)
            case ast.FunctionDef(returns=ast.Name(id="int")):
                tests = [
                    n for n in ast.walk(node) if isinstance(n, ast.If) and ast.unparse(n.test).endswith(" is None")
                ]
                values = [n.body[0].value for n in tests if isinstance(n.body[0], ast.Return)]
                names, is_guess = (node.name,), any(value and _is_number(value) for value in values)
            case ast.BoolOp(op=ast.Or(), values=[ast.Call(func=ast.Name(id="as_int")) as call, other]):
                names, is_guess = (ast.unparse(call),), _is_number(other)
            case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[ast.Call(func=ast.Name(id=of)), other]):
                names, is_guess = (of,), of == "free_symbols" and _is_number(other)
            case _:
                continue
        if is_guess and names:
            yield Violation(names[0], f"line {node.lineno}: {names[0]} is guessed; `estimate` of hints.py knows better")


def _tested_for_none(test: ast.expr) -> tuple[str, ...]:
    """The names that a condition compares with None."""
    found = (node for node in ast.walk(test) if isinstance(node, ast.Compare) and ast.unparse(node).endswith(" None"))
    return tuple(ast.unparse(node.left) for node in found)


def _is_number(value: ast.expr) -> bool:
    """Whether an expression is a number other than 0, or made of numbers and constants."""
    match value:
        case ast.Constant(value=int(number)):
            return number > 0 and not isinstance(number, bool)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper() and len(name) > 1
        case ast.BinOp(left=left, op=op, right=right):
            return _is_number(left) and (isinstance(op, ast.Pow) or _is_number(right))
        case _:
            return False


def _arithmetic(value: ast.expr) -> Iterator[str]:
    """The texts of the operands of an expression, as far as operators reach."""
    yield ast.unparse(value)
    if isinstance(value, ast.BinOp | ast.UnaryOp | ast.BoolOp):
        for inner in ast.iter_child_nodes(value):
            if isinstance(inner, ast.expr):
                yield from _arithmetic(inner)


RULES: dict[str, Callable[[str, str], Iterator[Violation]]] = {
    "layers": layers,
    "separate_stages": separate_stages,
    "peer": peer,
    "lines_only": lines_only,
    "lazy_top": lazy_top,
    "effects": effects,
    "sizes": sizes,
    "no_global": no_global,
    "mutable_state": mutable_state,
    "bounded_memo": bounded_memo,
    "quiet_import": quiet_import,
    "names": names,
    "docstring": docstring,
    "no_flags": no_flags,
    "finished": finished,
    "no_see_above": no_see_above,
    "users_lines": users_lines,
    "no_guesses": no_guesses,
}
