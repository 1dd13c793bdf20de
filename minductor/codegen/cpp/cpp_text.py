"""Text in C++: literals, index expressions and indented lines.

Takes numbers, index expressions and lines. Gives text. Refuses nothing.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import symbol
>>> literal(0.1, F32), literal(float("-inf"), F32)
('0.1f', '-MD_INF')
>>> i = symbol("i0", "axis", 0, 63)
>>> index_text(64 * i + i // 8 + 1)
'64 * i0 + i0 / 8 + 1'
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from minductor.core.dtypes import DType
from minductor.core.expressions.algebra import Const, FloorDiv, Identity, Max, Min, Mod, Product, Sum, Symbol
from minductor.core.expressions.expr import Expr, as_int, is_natural
from minductor.ir.program.nodes import Kernel, LiteralValue

MarkOf: TypeAlias = Callable[[int], str]


class Lines:
    """Lines of text, indented by the blocks that are open.

    `mark_of`: the mark of a line that computes the op at a position (`line_marks.py`); without it no line has one.
    """

    def __init__(self, mark_of: MarkOf | None = None) -> None:
        self.lines: list[str] = []
        self.indent = ""
        self.mark_of = mark_of
        self.mark = ""  # of the lines that are added

    def computes(self, position: int | None) -> None:
        """Says that the lines added from here on compute the op at a position; None: they compute no op."""
        if self.mark_of is not None:
            self.mark = "" if position is None else self.mark_of(position)

    def add(self, *texts: str) -> None:
        self.lines += [self.indent + text + self.mark for text in texts]

    def add_each(self, texts: Mapping[int, str]) -> None:
        """Adds lines, each by the position of the op that it computes."""
        for position, text in texts.items():
            self.computes(position)
            self.add(text)
        self.computes(None)

    @contextmanager
    def block(self, head: str, end: str = "}") -> Generator[None]:
        """Opens a block for the lines that are added in a `with` statement, and closes it behind them."""
        self.open(head)
        yield
        self.close(end)

    def open(self, text: str) -> None:
        self.lines.append(f"{self.indent}{text} {{")
        self.indent += "  "

    def close(self, text: str = "}") -> None:
        self.indent = self.indent[:-2]
        self.lines.append(self.indent + text)

    def pragma(self, text: str) -> None:
        self.lines.append("#pragma " + text)


def literal(value: LiteralValue, dtype: DType) -> str:
    """A constant of a dtype, as C++ writes it."""
    match dtype.kind:
        case "bool":
            return "true" if value else "false"
        case "float":
            assert not isinstance(value, complex)
            return _float(float(value), dtype)
        case _:
            assert not isinstance(value, complex)
            number = int(value)
            if dtype.itemsize == 8 and abs(number) >= 1 << 31:
                return "(-9223372036854775807 - 1)" if number == -(1 << 63) else str(number)
            return str(number)


def _float(value: float, dtype: DType) -> str:
    if math.isnan(value):
        return "MD_NAN"
    is_single = dtype.name == "f32"
    if is_single:
        value = _single(value)
    if math.isinf(value):
        return "MD_INF" if value > 0 else "-MD_INF"
    return f"{_shortest(value)}f" if is_single else repr(value)


def _single(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _shortest(value: float) -> str:
    """The shortest decimal number that rounds to this float32."""
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if _single(float(text)) == value:
            return text if any(c in text for c in ".e") else text + ".0"
    return repr(value)


class IndexWords(NamedTuple):
    """How a language writes quotients of natural numbers, minima and maxima."""

    quotient: str
    minimum: str
    maximum: str


CPP = IndexWords("/", "md_index_min", "md_index_max")


def index_text(expr: Expr, words: IndexWords = CPP) -> str:
    """An index expression over axes, sizes and checked indices, in int64_t."""
    return _index(expr, words, 0)


def _index(expr: Expr, words: IndexWords, level: int) -> str:
    """The text of an expression. At level 1 the text can be a factor, at level 2 an atom."""

    def inner(part: Expr, level: int) -> str:
        return _index(part, words, level)

    match expr:
        case Const(value):
            return f"({value})" if value < 0 and level else str(value)
        case Symbol(name):
            return name
        case Identity(arg):
            return inner(arg, level)
        case Sum(const, terms):
            text, needs = _sum(const, terms, inner), 0
        case Product(factors):
            text, needs = " * ".join(inner(factor, 2) for factor in factors), 1
        case FloorDiv(num, den) | Mod(num, den):
            is_div = isinstance(expr, FloorDiv)
            if not (is_natural(num) and is_natural(den)):
                return f"md_index_{'div' if is_div else 'mod'}({inner(num, 0)}, {inner(den, 0)})"
            text = f"{inner(num, 2)} {words.quotient if is_div else '%'} {inner(den, 2)}"
            needs = 1 if level < 2 else 0
        case Min(args) | Max(args):
            name = words.minimum if isinstance(expr, Min) else words.maximum
            return functools.reduce(lambda text, arg: f"{name}({text}, {arg})", (inner(arg, 0) for arg in args))
        case _:
            raise TypeError(f"not an index expression: {expr}")
    return text if level <= needs else f"({text})"


def _sum(const: int, terms: tuple[tuple[Expr, int], ...], inner: Callable[[Expr, int], str]) -> str:
    """A sum of terms with their coefficients; `inner` writes a term for a level."""
    text = ""
    for term, coefficient in terms:
        sign = (" - " if coefficient < 0 else " + ") if text else ("-" if coefficient < 0 else "")
        scale = abs(coefficient)
        text += sign + (inner(term, 1) if scale == 1 else f"{scale} * {inner(term, 2)}")
    if const or not text:
        text += f" - {-const}" if const < 0 else f" + {const}"
    return text


def threads_text(kernel: Kernel) -> str:
    """The number of threads of parallel loops; a test at the call takes one thread for little work."""
    total: Expr | None = None
    for axis in kernel.axes:
        total = axis.extent if total is None else total * axis.extent
    if total is None or as_int(total) is not None:
        return "threads"
    return f"{index_text(total)} > 16384 ? threads : 1"
