"""Reads programs back from the text that `printer.py` writes: `parse_program(print_program(p)) == p`.

Takes text. Gives a Program or Kernel. Refuses malformed text with a ValueError that names the line and the column.
A test may start at any stage with a program that a person has written as text.
"""

from __future__ import annotations

import json
import math
from typing import get_args

from minductor.core.dtypes import DType, by_name
from minductor.core.expressions.expr import Expr, Symbol, as_int, integer, symbol
from minductor.core.expressions.expr_parser import Tokens, read_expr, read_rel
from minductor.ir.program.build import checked_symbol, combine
from minductor.ir.program.choices import Choice, Option
from minductor.ir.program.memory_access import Access, BlockAccess, BlockDim
from minductor.ir.program.nodes import (
    Argument,
    Assert,
    Atomic,
    Attrs,
    Axis,
    Body,
    Buffer,
    Check,
    Combine,
    Constant,
    ErrorKind,
    Extern,
    FusionRefusal,
    Guard,
    Index,
    Input,
    Kernel,
    LiteralValue,
    Load,
    Masked,
    MergedKernel,
    Node,
    NodeNote,
    Op,
    Origin,
    Parameter,
    Program,
    Project,
    Reduce,
    Ref,
    Region,
    Require,
    Round,
    Scan,
    Store,
    SymbolDef,
    Token,
    Variant,
    View,
)
from minductor.ir.program.schedule import Schedule, parse_schedule


def parse_program(text: str) -> Program:
    """The program that `print_program` printed."""
    reader = _Reader(text)
    program = reader.program()
    reader.end()
    return program


def parse_kernel(text: str) -> Kernel:
    """The kernel, without symbols of sizes, that `print_kernel` printed."""
    reader = _Reader(text)
    reader.expect("kernel")
    kernel = reader.kernel()
    reader.end()
    return kernel


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text)
        self.symbols: dict[str, Symbol] = {}

    # --- words

    def expect(self, word: str) -> None:
        self.tokens.expect(word)

    def accept(self, word: str) -> bool:
        return self.tokens.accept(word)

    def name(self) -> str:
        return self.tokens.take("name")

    def at(self, word: str) -> bool:
        return self.tokens.peek.text == word and self.tokens.peek.kind in ("name", "sign")

    def end(self) -> None:
        if not self.tokens.is_done:
            raise self.tokens.error("expected the end")

    def text(self) -> str:
        return json.loads(self.tokens.take("string"))

    def number(self) -> int:
        negative = self.accept("-")
        value = int(self.tokens.take("number"))
        return -value if negative else value

    def expr(self) -> Expr:
        return read_expr(self.tokens, self.symbols)

    def dotted(self) -> str:
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return ".".join(parts)

    def dtype(self) -> DType:
        return by_name(self.name())

    def sizes(self) -> tuple[Expr, ...]:
        self.expect("[")
        found: list[Expr] = []
        while not self.accept("]"):
            found.append(self.expr())
            self.accept(",")
        return tuple(found)

    def ref(self) -> Ref:
        storage = self.name()
        self.expect("@")
        return Ref(storage, int(self.tokens.take("number")))

    def position(self) -> int:
        self.expect("%")
        return int(self.tokens.take("number"))

    def positions(self) -> tuple[int, ...]:
        found: list[int] = []
        while self.at("%"):
            found.append(self.position())
        return tuple(found)

    def literal(self) -> LiteralValue:
        token = self.tokens.peek
        if token.kind == "float":
            value = float(self.tokens.take("float"))
            return math.nan if math.isnan(value) else value
        if self.accept("true"):
            return True
        if self.accept("false"):
            return False
        if self.accept("complex"):
            self.expect("(")
            real = float(self.literal().real)
            self.expect(",")
            imag = float(self.literal().real)
            self.expect(")")
            return complex(real, imag)
        return self.number()

    # --- program

    def program(self) -> Program:
        self.expect("program")
        name = self.name()
        symbols: list[Symbol] = []
        inputs: list[Input] = []
        buffers: list[Buffer] = []
        guards: list[Guard] = []
        notes: list[FusionRefusal | MergedKernel | NodeNote] = []
        regions: list[Program] = []
        while True:
            if self.accept("symbol"):
                symbols.append(self.symbol())
            elif self.accept("made"):
                self.symbol()
            elif self.accept("input"):
                self.input(inputs, buffers)
            elif self.accept("constant"):
                buffers.append(self.buffer("constant"))
            elif self.accept("buffer"):
                buffers.append(self.buffer("local"))
            elif self.accept("guard"):
                rel = read_rel(self.tokens, self.symbols)
                self.expect("because")
                guards.append(Guard(rel, self.text()))
            elif self.accept("note"):
                notes.append(self.note())
            elif self.accept("region"):
                regions.append(self.nested())
            else:
                break
        nodes = self.nodes()
        self.expect("return")
        outputs = self.tuple()
        parts = (tuple(symbols), tuple(inputs), tuple(buffers), tuple(nodes), outputs)
        distinct: list[tuple[int, ...]] = []
        while self.accept("distinct"):
            distinct.append(tuple(n for n in self.tuple() if isinstance(n, int)))
        strides = tuple(n for n in self.tuple() if isinstance(n, int)) if self.accept("fixed_strides") else ()
        return Program(name, *parts, tuple(guards), tuple(notes), tuple(regions), tuple(distinct), strides)

    def nested(self) -> Program:
        """A region, with symbols of its own, even if the outer program has symbols of the same names."""
        outer, self.symbols = self.symbols, {}
        self.expect("{")
        program = self.program()
        self.expect("}")
        self.symbols = outer
        return program

    def symbol(self) -> Symbol:
        name = self.name()
        self.expect("[")
        low = self.bound()
        self.expect(",")
        high = self.bound()
        self.expect("]")
        kind = "real" if self.accept("real") else "truth" if self.accept("truth") else "size"
        made = self.symbols[name] = symbol(name, kind, low, high)
        return made

    def known(self) -> Symbol:
        """A symbol that an earlier line declares."""
        if self.tokens.peek.text not in self.symbols:
            raise self.tokens.error("expected a symbol that is declared above")
        return self.symbols[self.name()]

    def bound(self) -> int | None:
        if self.tokens.peek.kind == "float":
            self.tokens.take("float")
            return None
        return self.number()

    def input(self, inputs: list[Input], buffers: list[Buffer]) -> None:
        if self.tokens.look(1).text == "=":
            name = self.name()
            self.expect("=")
            inputs.append(Input(name, self.expr()))
            return
        buffer = self.buffer("input")
        is_static = self.accept("static")
        buffers.append(buffer)
        inputs.append(Input(buffer.name, None, is_static, self.accept("donated")))

    def buffer(self, kind: str) -> Buffer:
        name = self.name()
        self.expect(":")
        dtype = self.dtype()
        size = self.sizes()
        self.expect("stride")
        stride = self.sizes()
        where = "input" if kind == "input" else "constant" if kind == "constant" else "local"
        device = self.name()
        if self.accept(":"):
            device = f"{device}:{self.tokens.take('number')}"
        return Buffer(name, dtype, size, stride, where, device)

    def note(self) -> FusionRefusal | MergedKernel | NodeNote:
        stage, first = self.name(), self.name()
        if self.accept("|"):
            return FusionRefusal(stage, first, self.name(), self.text())
        if self.accept("into"):
            return MergedKernel(stage, first, self.name())
        return NodeNote(stage, first, self.text())

    def nodes(self) -> list[Node]:
        found: list[Node] = []
        while True:
            if self.accept("kernel"):
                found.append(self.kernel())
            elif self.accept("extern"):
                found.append(self.extern())
            elif self.accept("define"):
                made = self.known()
                origins = self.origins()
                found.append(SymbolDef(made, self.body(), origins))
            elif self.accept("require"):
                message = self.text()
                origins = self.origins()
                found.append(Require(self.body(), message, origins))
            else:
                return found

    def origins(self) -> tuple[Origin, ...]:
        if not self.accept("from"):
            return ()
        found: list[Origin] = []
        while True:
            node = self.name()
            self.expect("=")
            found.append(Origin(node, self.dotted()))
            if not self.accept(","):
                return tuple(found)

    def kernel(self) -> Kernel:
        outer = dict(self.symbols)
        name = self.name()
        self.expect("(")
        axes: list[Axis] = []
        while not self.accept(")"):
            axis = self.name()
            self.expect(":")
            extent = self.expr()
            last = as_int(extent)
            made = self.symbols[axis] = symbol(axis, "axis", 0, None if last is None else last - 1)
            axes.append(Axis(made, extent))
            self.accept(",")
        after = self.refs("after")
        origins = self.origins()
        schedule = self.schedule()
        access: list[Access] = []
        while self.accept("access"):
            access.append(self.access())
        choices: list[Choice] = []
        while self.accept("choice"):
            choices.append(self.choice())
        variants: list[Variant] = []
        while self.accept("variant"):
            variants.append(self.variant(outer))
        body = self.body()
        self.symbols = outer
        rest = (schedule, tuple(access), after, tuple(choices), tuple(variants))
        return Kernel(name, tuple(axes), body, origins, *rest)

    def variant(self, symbols: dict[str, Symbol]) -> Variant:
        """A variant; its kernels do not see the axes of the kernel around it."""
        inner, self.symbols = self.symbols, symbols
        name = self.name()
        self.expect("{")
        buffers: list[Buffer] = []
        while self.accept("buffer"):
            buffers.append(self.buffer("local"))
        nodes = [node for node in self.nodes() if isinstance(node, Kernel | Extern)]
        self.expect("}")
        self.symbols = inner
        return Variant(name, tuple(buffers), tuple(nodes))

    def choice(self) -> Choice:
        name, affects, default = self.name(), self.name(), self.option()
        if affects not in ("bits", "perf"):
            raise self.tokens.error(f"a choice affects bits or perf, not {affects!r}")
        self.expect("of")
        self.expect("(")
        options: list[Option] = []
        while not self.accept(")"):
            options.append(self.option())
            self.accept(",")
        return Choice(name, affects, tuple(options), default)

    def option(self) -> Option:
        return self.number() if self.tokens.peek.kind == "number" else self.name()

    def schedule(self) -> Schedule | None:
        """The schedule of a kernel, if one stands here; the text between its braces has a grammar of its own."""
        if not self.accept("schedule"):
            return None
        start = self.tokens.peek.start + 1
        depth = 0
        while True:
            depth += 1 if self.at("{") else -1 if self.at("}") else 0
            stop = self.tokens.peek.start
            self.tokens.rewind(self.tokens.position + 1)
            if depth == 0:
                return parse_schedule(self.tokens.source[start:stop], self.symbols)
            if self.tokens.is_done:
                raise self.tokens.error("a schedule does not end")

    def access(self) -> Access:
        position, inside = self.position(), list[int]()
        while self.at("%"):
            inside.append(self.position())
        kind = self.name()
        if kind not in ("block", "strided", "scalar", "gather"):
            raise self.tokens.error(f"unknown kind of access {kind!r}")
        stride = self.bracketed() if self.accept("stride") else None
        block = self.block() if self.accept("at") else None
        form = self.name() if self.accept("as") else "offsets"
        if form not in ("offsets", "pointer", "descriptor"):
            raise self.tokens.error(f"unknown form of a block {form!r}")
        return Access(position, kind, stride, tuple(inside), block, form)

    def block(self) -> BlockAccess:
        offset = self.bracketed()
        dims: list[BlockDim] = []
        while self.accept("dim"):
            axis, size = self.name(), self.bracketed()
            self.expect("stride")
            stride = self.bracketed()
            step = self.bracketed() if self.accept("every") else integer(1)
            start = self.bracketed() if self.accept("from") else integer(0)
            dims.append(BlockDim(axis, size, stride, step, start))
        return BlockAccess(offset, tuple(dims))

    def bracketed(self) -> Expr:
        self.expect("<")
        found = self.expr()
        self.expect(">")
        return found

    def extern(self) -> Extern:
        name, form = self.name(), self.name()
        if form not in ("out", "return", "inplace"):
            raise self.tokens.error(f"unknown form of extern {form!r}")
        op = self.dotted()
        self.expect("(")
        args: list[Argument] = []
        kwargs: list[tuple[str, Argument]] = []
        while not self.accept(")"):
            if self.tokens.peek.kind == "name" and self.tokens.look(1).text == "=":
                key = self.name()
                self.expect("=")
                kwargs.append((key, self.argument()))
            else:
                args.append(self.argument())
            self.accept(",")
        self.expect("->")
        results = self.results()
        writes, holds = self.refs("writes"), self.refs("holds")
        effect = self.accept("effect")
        defines: list[Symbol] = []
        if self.accept("defines"):
            defines.append(self.known())
            while self.accept(","):
                defines.append(self.known())
        is_capturable = not self.accept("uncapturable")
        after = self.refs("after")
        origins = self.origins()
        self.expect("because")
        given = (tuple(args), tuple(kwargs), results, origins, self.text())
        return Extern(name, op, *given, form, writes, effect, tuple(defines), holds, after, is_capturable)

    def refs(self, word: str) -> tuple[Ref, ...]:
        """The versions after `word`, if the word stands here."""
        found: list[Ref] = []
        while self.accept("," if found else word):
            found.append(self.ref())
        return tuple(found)

    def results(self) -> tuple[View | Symbol | None, ...]:
        self.expect("(")
        found: list[View | Symbol | None] = []
        while not self.accept(")"):
            if self.accept("none"):
                found.append(None)
            elif self.tokens.look(1).text == "@":
                found.append(self.view())
            else:
                self.expect("symbol")
                found.append(self.known())
            self.accept(",")
        return tuple(found)

    # --- arguments

    def tuple(self) -> tuple[Argument, ...]:
        self.expect("(")
        found: list[Argument] = []
        while not self.accept(")"):
            found.append(self.argument())
            self.accept(",")
        return tuple(found)

    def view(self) -> View:
        ref, dtype, size = self.ref(), self.dtype(), self.sizes()
        self.expect("stride")
        stride = self.sizes()
        self.expect("offset")
        return View(ref, dtype, size, stride, self.expr())

    def argument(self) -> Argument:
        token = self.tokens.peek
        if token.text == "(":
            return self.tuple()
        if token.kind == "string":
            return self.text()
        if self.accept("<"):
            value = self.expr()
            self.expect(">")
            return value
        if self.accept("none"):
            return None
        if token.kind != "name" or token.text in ("true", "false", "complex"):
            return self.literal()
        if self.tokens.look(1).text == "@":
            return self.view()
        kind = self.name()
        if kind == "region":
            return Region(self.name(), self.sizes())
        return self.dtype() if kind == "dtype" else Token(kind, self.text())

    # --- bodies

    def body(self) -> Body:
        ops: list[Op] = []
        while self.at("%"):
            number = self.position()
            if number != len(ops):
                raise self.tokens.error(f"op %{number} where %{len(ops)} is next")
            self.expect("=")
            ops.append(self.op())
        results = self.positions() if self.accept("yield") else ()
        return Body(tuple(ops), results)

    def op(self) -> Op:
        name = self.name()
        args, attrs = self.attrs(name)
        dtype = self.dtype() if self.accept(":") else None
        self.expect("{")
        axes: list[str] = []
        while not self.accept("}"):
            axes.append(self.name())
        region = self.region() if self.at("{") else None
        match attrs:
            case Masked(_, other) if region is not None:
                attrs = Masked(region, other)
            case Reduce(over, how):
                attrs = Reduce(over, self.combine(how, dtype, region))
            case Scan(axis, how, reverse):
                attrs = Scan(axis, self.combine(how, dtype, region), reverse)
            case _:
                pass
        return Op(name, args, attrs, dtype, tuple(axes))

    def region(self) -> Body:
        self.expect("{")
        inner = self.body()
        self.expect("}")
        return inner

    def combine(self, how: Combine, dtype: DType | None, region: Body | None) -> Combine:
        if region is not None:
            return Combine(how.name, how.identity, region)
        if dtype is None:
            raise self.tokens.error("a combine needs a dtype")
        return combine(how.name, dtype)

    def attrs(self, name: str) -> tuple[tuple[int, ...], Attrs]:
        match name:
            case "constant":
                return (), Constant(self.literal())
            case "parameter":
                return (), Parameter(self.number())
            case "round_to":
                dtype = self.dtype()
                return self.positions(), Round(dtype)
            case "index":
                self.expect("<")
                expr = self.expr()
                self.expect(">")
                return self.positions(), Index(expr)
            case "load" | "store":
                ref, index = self.place()
                return self.positions(), Load(ref, index) if name == "load" else Store(ref, index)
            case "atomic":
                kind = self.name()
                ref, index = self.place()
                return self.positions(), Atomic(ref, index, kind)
            case "check":
                return self.check()
            case "masked":
                args = self.positions()
                self.expect("else")
                return args, Masked(Body(()), self.literal())
            case "reduce" | "scan":
                return self.collective(name)
            case "project":
                number = self.number()
                return self.positions(), Project(number)
            case "assert":
                args = self.positions()
                return args, Assert(self.text())
            case _:
                return self.positions(), None

    def place(self) -> tuple[Ref, Expr]:
        ref = self.ref()
        self.expect("[")
        index = self.expr()
        self.expect("]")
        return ref, index

    def check(self) -> tuple[tuple[int, ...], Check]:
        args = self.positions()
        self.expect("as")
        name = self.name()
        self.expect("<")
        size = self.expr()
        made = self.symbols[name] = checked_symbol(name, size)
        wrap = self.accept("wrap")
        error = self.error()
        if not self.accept("in"):
            return args, Check(made, size, wrap, error)
        whose = self.text()
        self.expect("dim")
        return args, Check(made, size, wrap, error, whose, self.number())

    def error(self) -> ErrorKind | None:
        if self.accept("proved"):
            return None
        self.expect("raises")
        for kind in get_args(ErrorKind):
            if self.accept(kind):
                return kind
        raise self.tokens.error("an index raises IndexError or RuntimeError")

    def collective(self, name: str) -> tuple[tuple[int, ...], Reduce | Scan]:
        reverse = self.accept("reverse")
        how = self.name()
        identity: list[LiteralValue] = []
        if self.accept("("):
            while not self.accept(")"):
                identity.append(self.literal())
                self.accept(",")
        self.expect("over")
        axes = [self.name()]
        while not self.accept("of"):
            axes.append(self.name())
        unknown = Combine(how, tuple(identity), Body(()))
        made = Reduce(tuple(axes), unknown) if name == "reduce" else Scan(axes[0], unknown, reverse)
        return self.positions(), made
