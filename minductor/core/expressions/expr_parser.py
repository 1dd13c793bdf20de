"""The parser of index expressions and relations, and the tokens that other parsers of the IR use as well.

Takes: the text that `str` prints, and the symbols that the text may name.
Gives: the expression or relation in canonical form: ``parse_expr(str(e), symbols) == e``.
Refuses: unknown symbols and malformed text, with a ValueError that names the line and the column.

>>> from minductor.core.expressions.expr import symbol
>>> symbols = {name: symbol(name, "axis") for name in ("x", "y")}
>>> str(parse_expr("64*x + (y % 4) - min(x, y)//8", symbols))
'64*x - min(x, y)//8 + y % 4'
>>> str(parse_rel("(x < y) and not ((x == 1) or (y <= 2))", symbols))
'(x < y) and (not ((x == 1) or (y <= 2)))'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from minductor.core.expressions.expr import (
    FALSE,
    TRUE,
    CompareOp,
    Expr,
    Rel,
    Symbol,
    all_of,
    any_of,
    compare,
    identity,
    integer,
    maximum,
    minimum,
    negate,
)


class Token(NamedTuple):
    kind: str
    text: str
    start: int


_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
    (?P<float>-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|inf\b|nan\b))
    |(?P<number>\d+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<sign>//|==|!=|<=|>=|->|::|[-+*/%(){}\[\]<>=,:;.@$^&|!?~])
    |(?P<end>\Z))""",
    re.VERBOSE,
)


class Tokens:
    """The tokens of a text and a position among them: names, numbers, floats, quoted strings, and signs.

    >>> tokens = Tokens("load x@0[64*i]")
    >>> tokens.take("name"), tokens.take("name"), tokens.accept("@"), tokens.take("number")
    ('load', 'x', True, '0')
    """

    __slots__ = ("_all", "_next", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._all = list(_scan(source))
        self._next = 0

    @property
    def peek(self) -> Token:
        return self._all[self._next]

    def look(self, ahead: int) -> Token:
        """The token `ahead` places after the next one."""
        return self._all[min(self._next + ahead, len(self._all) - 1)]

    def accept(self, text: str) -> bool:
        """Whether the next token is this sign or word; if so, it is consumed."""
        token = self.peek
        if token.text != text or token.kind not in ("sign", "name"):
            return False
        self._next += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected '{text}'")

    def take(self, kind: str) -> str:
        """Consumes the next token, which must be of this kind, and returns its text."""
        token = self.peek
        if token.kind != kind:
            raise self.error(f"expected a {kind}")
        self._next += 1
        return token.text

    @property
    def is_done(self) -> bool:
        return self.peek.kind == "end"

    @property
    def position(self) -> int:
        """The current position, for `rewind`."""
        return self._next

    def rewind(self, position: int) -> None:
        self._next = position

    def error(self, message: str) -> ValueError:
        token = self.peek
        line = self.source.count("\n", 0, token.start) + 1
        column = token.start - (self.source.rfind("\n", 0, token.start) + 1) + 1
        found = f"found '{token.text}'" if token.text else "found the end"
        return ValueError(f"line {line}, column {column}: {message}, {found}")


def _scan(source: str) -> Iterator[Token]:
    start = 0
    while True:
        match = _TOKEN.match(source, start)
        if match is None:
            rest = source[start:].lstrip()
            raise ValueError(f"offset {len(source) - len(rest)}: cannot read '{rest[:20]}'")
        kind = match.lastgroup or "end"
        yield Token(kind, match[kind], match.start(kind))
        if kind == "end":
            return
        start = match.end()


def parse_expr(text: str, symbols: Mapping[str, Symbol]) -> Expr:
    return read_whole(text, lambda tokens: read_expr(tokens, symbols))


def parse_rel(text: str, symbols: Mapping[str, Symbol]) -> Rel:
    return read_whole(text, lambda tokens: read_rel(tokens, symbols))


_T = TypeVar("_T")


def read_whole(text: str, read: Callable[[Tokens], _T]) -> _T:
    """What `read` makes of a text; ValueError if it leaves tokens over."""
    tokens = Tokens(text)
    value = read(tokens)
    if not tokens.is_done:
        raise tokens.error("expected the end")
    return value


def read_expr(tokens: Tokens, symbols: Mapping[str, Symbol]) -> Expr:
    """Consumes one expression and returns it."""
    value = _term(tokens, symbols)
    while True:
        if tokens.accept("+"):
            value = value + _term(tokens, symbols)
        elif tokens.accept("-"):
            value = value - _term(tokens, symbols)
        else:
            return value


def _term(tokens: Tokens, symbols: Mapping[str, Symbol]) -> Expr:
    value = _unary(tokens, symbols)
    while True:
        if tokens.accept("*"):
            value = value * _unary(tokens, symbols)
        elif tokens.accept("//"):
            value = value // _unary(tokens, symbols)
        elif tokens.accept("%"):
            value = value % _unary(tokens, symbols)
        else:
            return value


def _unary(tokens: Tokens, symbols: Mapping[str, Symbol]) -> Expr:
    if tokens.accept("-"):
        return -_unary(tokens, symbols)
    if tokens.accept("("):
        value = read_expr(tokens, symbols)
        tokens.expect(")")
        return value
    if tokens.peek.kind == "number":
        return integer(int(tokens.take("number")))
    if tokens.peek.kind == "name" and tokens.look(1).text == "(":
        return _call(tokens, symbols)
    if tokens.peek.kind == "name" and tokens.peek.text in symbols:
        return symbols[tokens.take("name")]
    raise tokens.error("expected an index expression")


def _call(tokens: Tokens, symbols: Mapping[str, Symbol]) -> Expr:
    if tokens.peek.text not in ("min", "max", "identity"):
        raise tokens.error("expected min, max or identity")
    name = tokens.take("name")
    tokens.expect("(")
    args = [read_expr(tokens, symbols)]
    while tokens.accept(","):
        args.append(read_expr(tokens, symbols))
    tokens.expect(")")
    match name:
        case "min":
            return minimum(*args)
        case "max":
            return maximum(*args)
        case _:
            if len(args) != 1:
                raise tokens.error("identity takes one argument before this")
            return identity(args[0])


def read_rel(tokens: Tokens, symbols: Mapping[str, Symbol]) -> Rel:
    """Consumes one relation and returns it."""
    rels = [_conjunction(tokens, symbols)]
    while tokens.accept("or"):
        rels.append(_conjunction(tokens, symbols))
    return any_of(*rels)


def _conjunction(tokens: Tokens, symbols: Mapping[str, Symbol]) -> Rel:
    rels = [_atom(tokens, symbols)]
    while tokens.accept("and"):
        rels.append(_atom(tokens, symbols))
    return all_of(*rels)


def _atom(tokens: Tokens, symbols: Mapping[str, Symbol]) -> Rel:
    if tokens.accept("not"):
        return negate(_atom(tokens, symbols))
    if tokens.accept("true"):
        return TRUE
    if tokens.accept("false"):
        return FALSE
    start = tokens.position
    if tokens.accept("("):
        # '(' may open a relation or an index expression; the text behind its ')' decides.
        try:
            rel = read_rel(tokens, symbols)
            tokens.expect(")")
            return rel
        except ValueError:
            tokens.rewind(start)
    left = read_expr(tokens, symbols)
    for op in _OPS:
        if tokens.accept(op):
            return compare(op, left, read_expr(tokens, symbols))
    if tokens.accept(">="):
        return compare("<=", read_expr(tokens, symbols), left)
    if tokens.accept(">"):
        return compare("<", read_expr(tokens, symbols), left)
    raise tokens.error("expected a comparison")


_OPS: tuple[CompareOp, ...] = ("==", "!=", "<=", "<")
