"""Reads programs back from the text that `printer.py` writes: `parse_program(print_program(p)) == p`.

Takes text. Gives a Program or Kernel. Refuses malformed text with a ValueError that names the line and the column.
A test may start at any stage with a program that a person has written as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TypeVar, get_args

from minductor.core.dtypes import DType, by_name
from minductor.core.expressions.expr import Expr, Symbol, index_below, integer, symbol
from minductor.core.expressions.expr_parser import Tokens, read_expr, read_rel, read_whole
from minductor.ir.program import nodes as ir
from minductor.ir.program.build import combine
from minductor.ir.program.choices import BySize, Choice, Option
from minductor.ir.program.loops import Schedule, read_positions, read_schedule
from minductor.ir.program.memory_access import Access, BlockAccess, BlockDim, Eviction
from minductor.ir.program.variant_note import DECIDERS, VariantNote

T = TypeVar("T")


def parse_program(text: str) -> ir.Program:
    """The program that `print_program` printed."""
    return read_whole(text, lambda tokens: _Reader(tokens).program())


def parse_kernel(text: str) -> ir.Kernel:
    """The kernel, without symbols of sizes, that `print_kernel` printed."""

    def kernel(tokens: Tokens) -> ir.Kernel:
        tokens.expect("kernel")
        return _Reader(tokens).kernel()

    return read_whole(text, kernel)


class _Reader:
    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
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
        return self.between("[", self.expr, "]")

    # --- several of a kind; `item` reads one

    def between(self, begin: str, item: Callable[[], T], end: str) -> tuple[T, ...]:
        """The items between two signs, which commas or blanks separate."""
        self.expect(begin)
        found: list[T] = []
        while not self.accept(end):
            found.append(item())
            self.accept(",")
        return tuple(found)

    def each(self, word: str, item: Callable[[], T]) -> tuple[T, ...]:
        """An item after each repetition of `word`."""
        found: list[T] = []
        while self.accept(word):
            found.append(item())
        return tuple(found)

    def after(self, word: str, item: Callable[[], T]) -> tuple[T, ...]:
        """The items after `word`, which commas separate; () if the word does not stand here."""
        return (item(), *self.each(",", item)) if self.accept(word) else ()

    # --- places in memory and in bodies

    def ref(self) -> ir.Ref:
        storage = self.name()
        self.expect("@")
        return ir.Ref(storage, int(self.tokens.take("number")))

    def position(self) -> int:
        self.expect("%")
        return int(self.tokens.take("number"))

    def positions(self) -> tuple[int, ...]:
        return read_positions(self.tokens)

    def literal(self) -> ir.LiteralValue:
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

    def program(self) -> ir.Program:
        self.expect("program")
        name = self.name()
        symbols: list[Symbol] = []
        inputs: list[ir.Input] = []
        buffers: list[ir.Buffer] = []
        guards: list[ir.Guard] = []
        notes: list[ir.FusionRefusal | ir.MergedKernel | ir.NodeNote | VariantNote] = []
        hints: list[tuple[Symbol, int]] = []
        regions: list[ir.Program] = []
        while True:
            if self.accept("symbol"):
                symbols.append(self.symbol())
                hints += [(symbols[-1], n) for n in self.each("hint", self.number)]
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
                guards.append(ir.Guard(rel, self.text()))
            elif self.accept("note"):
                notes.append(self.note())
            elif self.accept("region"):
                regions.append(self.nested())
            else:
                break
        nodes = self.node_list()
        self.expect("return")
        outputs = self.arguments()
        parts = (tuple(symbols), tuple(inputs), tuple(buffers), tuple(nodes), outputs)
        distinct = self.each("distinct", self.numbers)
        strides = self.numbers() if self.accept("fixed_strides") else ()
        facts = (tuple(guards), tuple(notes), tuple(regions), distinct, strides, tuple(hints))
        return ir.Program(name, *parts, *facts)

    def nested(self) -> ir.Program:
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

    def input(self, inputs: list[ir.Input], buffers: list[ir.Buffer]) -> None:
        if self.tokens.look(1).text == "=":
            name = self.name()
            self.expect("=")
            inputs.append(ir.Input(name, self.expr()))
            return
        buffer = self.buffer("input")
        is_static = self.accept("static")
        buffers.append(buffer)
        inputs.append(ir.Input(buffer.name, None, is_static, self.accept("donated")))

    def buffer(self, kind: str) -> ir.Buffer:
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
        return ir.Buffer(name, dtype, size, stride, where, device)

    def note(self) -> ir.FusionRefusal | ir.MergedKernel | ir.NodeNote | VariantNote:
        stage, first = self.name(), self.name()
        if self.accept("|"):
            second, reason = self.name(), self.text()
            return ir.FusionRefusal(stage, first, second, reason, self.figures())
        if self.accept("into"):
            return ir.MergedKernel(stage, first, self.name())
        if self.accept("takes"):
            taken, by = self.name(), self.name()
            if by not in DECIDERS:
                raise self.tokens.error(f"{by!r} decides nothing")
            return VariantNote(stage, first, taken, by, self.between("(", self.name, ")"), self.figures())
        return ir.NodeNote(stage, first, self.text(), self.figures())

    def figures(self) -> str:
        return self.text() if self.accept("at") else ""

    def node_list(self) -> list[ir.Node]:
        found: list[ir.Node] = []
        while True:
            if self.accept("kernel"):
                found.append(self.kernel())
            elif self.accept("extern"):
                found.append(self.extern())
            elif self.accept("define"):
                made, origins = self.known(), self.origins()
                found.append(ir.SymbolDef(made, self.body(), origins))
            elif self.accept("require"):
                message, origins = self.text(), self.origins()
                found.append(ir.Require(self.body(), message, origins))
            else:
                return found

    def origins(self) -> tuple[ir.Origin, ...]:
        return self.after("from", self.origin)

    def origin(self) -> ir.Origin:
        node = self.name()
        self.expect("=")
        return ir.Origin(node, self.dotted())

    def kernel(self) -> ir.Kernel:
        outer = dict(self.symbols)
        name, axes = self.name(), self.between("(", self.axis, ")")
        after, origins, schedule = self.after("after", self.ref), self.origins(), self.schedule()
        access, choices = self.each("access", self.access), self.each("choice", self.choice)
        variants = self.each("variant", lambda: self.variant(outer))
        body = self.body()
        self.symbols = outer
        return ir.Kernel(name, axes, body, origins, schedule, access, after, choices, variants)

    def axis(self) -> ir.Axis:
        name = self.name()
        self.expect(":")
        axis = ir.axis_over(name, self.expr())
        self.symbols[name] = axis.symbol
        return axis

    def variant(self, symbols: dict[str, Symbol]) -> ir.Variant:
        """A variant; its kernels do not see the axes of the kernel around it."""
        inner, self.symbols = self.symbols, symbols
        name = self.name()
        self.expect("{")
        buffers = self.each("buffer", lambda: self.buffer("local"))
        nodes = tuple(node for node in self.node_list() if isinstance(node, ir.Kernel | ir.Extern))
        self.expect("}")
        self.symbols = inner
        return ir.Variant(name, buffers, nodes)

    def choice(self) -> Choice:
        name, affects, default = self.name(), self.name(), self.option()
        if affects not in ("bits", "perf"):
            raise self.tokens.error(f"a choice affects bits or perf, not {affects!r}")
        self.expect("of")
        options = self.between("(", self.option, ")")
        return Choice(name, affects, options, default, self.by_size() if self.accept("by") else None)

    def by_size(self) -> BySize:
        symbols = self.between("(", self.name, ")")
        return BySize(symbols, self.each("at", lambda: (self.between("(", self.number, ")"), self.option())))

    def option(self) -> Option:
        return self.number() if self.tokens.peek.kind == "number" else self.name()

    def schedule(self) -> Schedule | None:
        """The schedule of a kernel, if one stands here."""
        if not self.accept("schedule"):
            return None
        self.expect("{")
        schedule = read_schedule(self.tokens, self.symbols)
        self.expect("}")
        return schedule

    def access(self) -> Access:
        position, inside = self.position(), self.positions()
        kind = self.name()
        if kind not in ("block", "strided", "scalar", "gather"):
            raise self.tokens.error(f"unknown kind of access {kind!r}")
        stride = self.bracketed() if self.accept("stride") else None
        block = self.block() if self.accept("at") else None
        form = self.name() if self.accept("as") else "offsets"
        if form not in ("offsets", "pointer", "descriptor"):
            raise self.tokens.error(f"unknown form of a block {form!r}")
        evictions: list[Eviction] = [self.eviction()] if self.accept("evict") else []
        while self.tokens.peek.text in ("first", "last"):
            evictions.append(self.eviction())
        return Access(position, kind, stride, inside, block, form, tuple(evictions))

    def eviction(self) -> Eviction:
        when = self.name()
        if when not in ("first", "last"):
            raise self.tokens.error(f"unknown hint for the cache {when!r}")
        return when

    def block(self) -> BlockAccess:
        return BlockAccess(self.bracketed(), self.each("dim", self.block_dim))

    def block_dim(self) -> BlockDim:
        axis, size = self.name(), self.bracketed()
        self.expect("stride")
        stride = self.bracketed()
        step = self.bracketed() if self.accept("every") else integer(1)
        start = self.bracketed() if self.accept("from") else integer(0)
        return BlockDim(axis, size, stride, step, start)

    def bracketed(self) -> Expr:
        self.expect("<")
        found = self.expr()
        self.expect(">")
        return found

    def extern(self) -> ir.Extern:
        name, form = self.name(), self.name()
        if form not in ("out", "return", "inplace"):
            raise self.tokens.error(f"unknown form of extern {form!r}")
        op = self.dotted()
        self.expect("(")
        args: list[ir.Argument] = []
        kwargs: list[tuple[str, ir.Argument]] = []
        while not self.accept(")"):
            if self.tokens.peek.kind == "name" and self.tokens.look(1).text == "=":
                key = self.name()
                self.expect("=")
                kwargs.append((key, self.argument()))
            else:
                args.append(self.argument())
            self.accept(",")
        self.expect("->")
        results = self.between("(", self.result, ")")
        writes, holds = self.after("writes", self.ref), self.after("holds", self.ref)
        effect, defines = self.accept("effect"), self.after("defines", self.known)
        is_capturable = not self.accept("uncapturable")
        after, origins = self.after("after", self.ref), self.origins()
        self.expect("because")
        given = (tuple(args), tuple(kwargs), results, origins, self.text())
        return ir.Extern(name, op, *given, form, writes, effect, defines, holds, after, is_capturable)

    def result(self) -> ir.View | Symbol | None:
        if self.accept("none"):
            return None
        if self.tokens.look(1).text == "@":
            return self.view()
        self.expect("symbol")
        return self.known()

    # --- arguments

    def arguments(self) -> tuple[ir.Argument, ...]:
        return self.between("(", self.argument, ")")

    def numbers(self) -> tuple[int, ...]:
        return tuple(n for n in self.arguments() if isinstance(n, int))

    def view(self) -> ir.View:
        ref, dtype, size = self.ref(), self.dtype(), self.sizes()
        self.expect("stride")
        stride = self.sizes()
        self.expect("offset")
        return ir.View(ref, dtype, size, stride, self.expr())

    def argument(self) -> ir.Argument:
        token = self.tokens.peek
        if token.text == "(":
            return self.arguments()
        if token.kind == "string":
            return self.text()
        if self.at("<"):
            return self.bracketed()
        if self.accept("none"):
            return None
        if token.kind != "name" or token.text in ("true", "false", "complex"):
            return self.literal()
        if self.tokens.look(1).text == "@":
            return self.view()
        kind = self.name()
        if kind == "region":
            return ir.Region(self.name(), self.sizes())
        return self.dtype() if kind == "dtype" else ir.Token(kind, self.text())

    # --- bodies

    def body(self) -> ir.Body:
        ops: list[ir.Op] = []
        while self.at("%"):
            number = self.position()
            if number != len(ops):
                raise self.tokens.error(f"op %{number} where %{len(ops)} is next")
            self.expect("=")
            ops.append(self.op())
        results = self.positions() if self.accept("yield") else ()
        return ir.Body(tuple(ops), results)

    def op(self) -> ir.Op:
        name = self.name()
        args, attrs = self.attrs(name)
        dtype = self.dtype() if self.accept(":") else None
        axes = self.between("{", self.name, "}")
        region = self.region() if self.at("{") else None
        match attrs:
            case ir.Masked(_, other) if region is not None:
                attrs = ir.Masked(region, other)
            case ir.Reduce(over, how):
                attrs = ir.Reduce(over, self.combine(how, dtype, region))
            case ir.Scan(axis, how, reverse):
                attrs = ir.Scan(axis, self.combine(how, dtype, region), reverse)
            case _:
                pass
        return ir.Op(name, args, attrs, dtype, axes)

    def region(self) -> ir.Body:
        self.expect("{")
        inner = self.body()
        self.expect("}")
        return inner

    def combine(self, how: ir.Combine, dtype: DType | None, region: ir.Body | None) -> ir.Combine:
        if region is not None:
            return ir.Combine(how.name, how.identity, region)
        if dtype is None:
            raise self.tokens.error("a combine needs a dtype")
        return combine(how.name, dtype)

    def attrs(self, name: str) -> tuple[tuple[int, ...], ir.Attrs]:
        match name:
            case "constant":
                return (), ir.Constant(self.literal())
            case "parameter":
                return (), ir.Parameter(self.number())
            case "round_to":
                dtype = self.dtype()
                return self.positions(), ir.Round(dtype)
            case "index":
                expr = self.bracketed()
                return self.positions(), ir.Index(expr)
            case "load" | "store":
                ref, index = self.place()
                return self.positions(), ir.Load(ref, index) if name == "load" else ir.Store(ref, index)
            case "atomic":
                kind = self.name()
                ref, index = self.place()
                return self.positions(), ir.Atomic(ref, index, kind)
            case "check":
                return self.check()
            case "masked":
                args = self.positions()
                self.expect("else")
                return args, ir.Masked(ir.Body(()), self.literal())
            case "reduce" | "scan":
                return self.collective(name)
            case "project":
                number = self.number()
                return self.positions(), ir.Project(number)
            case "assert":
                args = self.positions()
                return args, ir.Assert(self.text())
            case _:
                return self.positions(), None

    def place(self) -> tuple[ir.Ref, Expr]:
        ref = self.ref()
        self.expect("[")
        index = self.expr()
        self.expect("]")
        return ref, index

    def check(self) -> tuple[tuple[int, ...], ir.Check]:
        args = self.positions()
        self.expect("as")
        name = self.name()
        self.expect("<")
        size = self.expr()
        made = self.symbols[name] = index_below(name, "value", size)
        wrap = self.accept("wrap")
        error = self.error()
        if not self.accept("in"):
            return args, ir.Check(made, size, wrap, error)
        whose = self.text()
        self.expect("dim")
        return args, ir.Check(made, size, wrap, error, whose, self.number())

    def error(self) -> ir.ErrorKind | None:
        if self.accept("proved"):
            return None
        self.expect("raises")
        for kind in get_args(ir.ErrorKind):
            if self.accept(kind):
                return kind
        raise self.tokens.error("an index raises IndexError or RuntimeError")

    def collective(self, name: str) -> tuple[tuple[int, ...], ir.Reduce | ir.Scan]:
        reverse = self.accept("reverse")
        how = self.name()
        identity = self.between("(", self.literal, ")") if self.at("(") else ()
        self.expect("over")
        axes = [self.name()]
        while not self.accept("of"):
            axes.append(self.name())
        unknown = ir.Combine(how, identity, ir.Body(()))
        made = ir.Reduce(tuple(axes), unknown) if name == "reduce" else ir.Scan(axes[0], unknown, reverse)
        return self.positions(), made
