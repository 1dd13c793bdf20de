"""The canonical form of generated text, which is equal for texts that differ only in layout, comments and local names.

Takes C++, Python or the text of an IR. Gives lines of tokens, each with the names that were replaced in it. Refuses
Python that does not parse (SyntaxError). Text of another language is its own canonical form.

>>> [line.text for line in canonical("int foo(int a) {\\n  int b = f(a); // why\\n  return b;\\n}", "cpp")]
['int foo ( int $1 ) {', 'int $2 = f ( $1 ) ;', 'return $2 ;', '}']
>>> [line.text for line in canonical("def f(x):\\n    y = g(x)  # why\\n    return y", "py")]
['def f(_l1_):', '    _l2_ = g(_l1_)', '    return _l2_']
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# A comment, a pragma, a string, a number, a name, or an operator of up to three characters.
CPP = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<pragma>\#[^\n]*)|(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)|(?P<name>[A-Za-z_]\w*)
    |(?P<operator><<=|>>=|\.\.\.|->|::|\+\+|--|<<|>>|[-+*/%&|^=!<>]=|&&|\|\||[^\s\w])""",
    re.VERBOSE | re.DOTALL,
)
KEYWORDS = re.compile(
    r"alignas|auto|bool|break|case|char|const|constexpr|continue|default|do|double|else|extern|false|float|for|if"
    r"|inline|int|long|nullptr|reinterpret_cast|return|short|signed|sizeof|static|static_cast|struct|switch|template"
    r"|true|typename|union|unsigned|using|void|volatile|while|__restrict|__builtin_memcpy|_Float16"
)
# The names that compilers number in an IR: values, buffers, arguments, kernels and other calls.
NUMBERED = re.compile(r"%\d+|\b(?:buf|arg|primals_|tangents_|k|x)\d+(?:_\d+)?\b")
CALLED = re.compile(r"\s*(\(|::)")
# Statements of Python whose inner statements are lines of their own. Any other statement, such as a try, is one line.
BLOCKS = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.If, ast.With)
# Names of minductor's prelude, standard integer types and macros mean the same in every kernel, so they are kept.
GLOBAL = re.compile(r"md_\w+|MD_\w+|\w+_t|[A-Z][A-Z0-9_]+|omp\w*")


@dataclass(frozen=True, slots=True)
class Line:
    """One canonical line, the number of its line in the text, and its local names in order."""

    text: str
    number: int
    names: tuple[str, ...]


def canonical(text: str, language: str) -> tuple[Line, ...]:
    """Returns the canonical lines of a text in "cpp", "py", "ir" or another language."""
    match language:
        case "cpp":
            return tuple(_cpp(text))
        case "py":
            return tuple(_python(text))
        case "ir":
            return tuple(_ir(text))
        case _:
            return tuple(Line(line, n, ()) for n, line in enumerate(text.splitlines()))


def _ir(text: str) -> Iterator[Line]:
    """Numbers values by first use. The values of a kernel, which begins with %0, are numbered anew in each kernel."""
    numbers: dict[str, str] = {}
    for row, line in enumerate(text.splitlines()):
        if line.lstrip().startswith("%0 "):
            numbers = {name: number for name, number in numbers.items() if not name.startswith("%")}
        names = NUMBERED.findall(line)
        fresh = {name: f"${len(numbers) + n + 1}" for n, name in enumerate(dict.fromkeys(names)) if name not in numbers}
        numbers |= fresh
        if line.strip():
            yield Line(NUMBERED.sub(lambda found, here=numbers: here[found[0]], line.rstrip()), row, tuple(names))


def _cpp(text: str) -> Iterator[Line]:
    """Ends a line where a statement ends, and numbers local names anew in each function."""
    local: dict[str, str] = {}
    fixed: dict[str, bool] = {}  # whether a word means the same everywhere
    tokens: list[str] = []
    names: list[str] = []
    row = start = parens = depth = counted = 0

    def line() -> Line:
        done = Line(" ".join(tokens), start, tuple(names))
        tokens.clear()
        names.clear()
        return done

    for found in CPP.finditer(text):
        kind, token = found.lastgroup, found[0]
        if kind == "comment":
            continue
        if not tokens or kind == "pragma":
            row, counted = row + text.count("\n", counted, found.start()), found.start()
        if not tokens:
            start = row
        if kind == "pragma":
            yield Line(" ".join(_rename_in(token, local).split()), row, ())
            continue
        if kind == "name":
            if token not in fixed:
                fixed[token] = bool(KEYWORDS.fullmatch(token) or GLOBAL.fullmatch(token))
            if not fixed[token] and _is_local(text, found.end(), tokens):
                names.append(token)
                token = local.setdefault(token, f"${len(local) + 1}")
            tokens.append(token)
            continue
        tokens.append(token)
        parens += (token == "(") - (token == ")")
        depth += (token == "{") - (token == "}")
        if token in "{}" or (token == ";" and parens <= 0):
            yield line()
            parens = 0
        if token == "}" and depth == 0:
            local.clear()
    if tokens:
        yield line()


def _is_local(text: str, end: int, before: list[str]) -> bool:
    """Tells whether a name that ends at a position is local to the kernel; called functions and members are not."""
    return not (before and before[-1] in (".", "->", "::")) and not CALLED.match(text, end)


def _rename_in(pragma: str, local: dict[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda name: local.get(name[0], name[0]), pragma)


def _python(text: str) -> Iterator[Line]:
    tree = ast.parse(text)
    renamer = _Renamer(_bound_names(tree))
    tree = renamer.visit(tree)
    for row, line in _rows(tree.body):
        yield Line(line, row, tuple(renamer.named(line)))


def _rows(statements: Sequence[ast.stmt], indent: str = "") -> Iterator[tuple[int, str]]:
    """Yields the lines of statements, each with the row of the text on which its statement begins."""
    for node in statements:
        if not isinstance(node, BLOCKS):
            yield from ((node.lineno - 1, indent + line) for line in ast.unparse(node).splitlines())
            continue
        head = copy.copy(node)
        head.body = [ast.Pass()]
        otherwise: Sequence[ast.stmt] = ()
        if isinstance(head, ast.For | ast.While | ast.If):
            otherwise, head.orelse = head.orelse, []
        yield from ((node.lineno - 1, indent + line) for line in ast.unparse(head).splitlines()[:-1])
        yield from _rows(node.body, f"{indent}    ")
        if otherwise:
            yield otherwise[0].lineno - 1, f"{indent}else:"
            yield from _rows(otherwise, f"{indent}    ")


def _bound_names(tree: ast.AST) -> frozenset[str]:
    """Returns the names that the text itself assigns; functions and imports keep their names."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return frozenset(bound)


class _Renamer(ast.NodeTransformer):
    """Numbers bound names by first use, in the order of the text."""

    def __init__(self, bound: frozenset[str]) -> None:
        self.bound = bound
        self.numbers: dict[str, str] = {}

    def of(self, name: str) -> str:
        return self.numbers.setdefault(name, f"_l{len(self.numbers) + 1}_") if name in self.bound else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self.of(node.id), node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        annotation = self.visit(node.annotation) if node.annotation else None
        return ast.copy_location(ast.arg(self.of(node.arg), annotation), node)

    def named(self, line: str) -> Iterator[str]:
        originals = {number: name for name, number in self.numbers.items()}
        yield from (originals[number] for number in re.findall(r"\b_l\d+_", line))
