"""The lives of the storages in a plan, read off its lines.

Takes lines, and the bytes of each buffer. Gives each storage with its names. Refuses nothing whose names
are made before they are used, and not used after they are freed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from minductor.core.expr import Expr, integer
from minductor.ir.lifetime import Making, Name, Owner, Storage, is_foreign
from minductor.ir.nodes import Argument, Input, Token
from minductor.ir.plan import Allocate, Constant, Dispatch, Extern, Free, Launch, Line, Return, Reuse, View


def lives(
    lines: Iterable[Line], inputs: Sequence[Input], sizes: Mapping[str, Expr], lent: Iterable[str] = ()
) -> tuple[Storage, ...]:
    """The storages of one call in the order of their births; `sizes`: the bytes of each buffer, by its name.

    `lent`: names from outside that are neither parameters nor constants of these lines.
    """
    reader = _Reader(sizes)
    for given in inputs:
        if given.symbol is None:
            reader.begin(given.name, "input", "donated" if given.is_donated else "lent", 0)
    for name in lent:
        reader.begin(name, "constant", "lent", 0)
    for line in lines:
        reader.line(line)
    return tuple(
        Storage(
            life.bytes,
            life.owner,
            life.birth,
            life.death,
            tuple(life.names.values()),
            is_returned=life.is_returned,
            is_shown=life.is_shown,
        )
        for life in reader.found
    )


def tensors(value: Argument) -> tuple[str, ...]:
    """The names of the tensors in an argument tree of a plan's line."""
    match value:
        case Token("tensor", name):
            return (name,)
        case tuple():
            return tuple(name for item in value for name in tensors(item))
        case _:
            return ()


def touched(line: Line) -> tuple[str, ...]:
    """The names of the tensors that a launch, a call or a window uses, and those that a call writes."""
    match line:
        case Launch(tensors=given) | Dispatch(tensors=given):
            return given
        case Extern(args=args, kwargs=kwargs, results=results, is_out=is_out):
            named = (name for _, value in kwargs for name in tensors(value))
            into = (name for name in results if name is not None and is_out)
            return (*tensors(args), *named, *into)
        case View(of=of):
            return (of,)
        case _:
            return ()


@dataclass(slots=True)
class _Life:
    """A storage whose end is not known yet."""

    bytes: Expr
    owner: Owner
    birth: int
    names: dict[str, Name] = field(default_factory=dict[str, Name])
    held: set[str] = field(default_factory=set[str])  # names that still stand for it
    death: int | None = None
    is_returned: bool = False
    is_shown: bool = False


@dataclass(slots=True)
class _Reader:
    sizes: Mapping[str, Expr]
    found: list[_Life] = field(default_factory=list[_Life])
    owner: dict[str, _Life] = field(default_factory=dict[str, _Life])
    calls: int = 0

    def line(self, line: Line) -> None:
        match line:
            case Constant(name=name):
                self.begin(name, "constant", "lent", 0)
            case Allocate(name=name):
                self.begin(name, "allocate", "own", self.calls + 1)
            case Reuse(name=name, old=old):
                self.join(name, "transfer", old)
                self.drop(old)
            case View(name=name, of=of):
                self.join(name, "alias", of)
            case Free(names):
                for name in names:
                    self.drop(name)
            case Launch() | Dispatch():
                self.calls += 1
            case Extern():
                self.extern(line)
            case Return(values):
                for name in tensors(values):
                    self.owner[name].is_returned = True
            case _:
                pass

    def extern(self, line: Extern) -> None:
        self.calls += 1
        # the others are numbers
        made = [name for name in line.results if name in self.sizes and name is not None]
        if not line.is_out:
            for name in made:
                self.begin(name, "give", "own", self.calls)
        if is_foreign(line.op):
            given = (*tensors(line.args), *(name for _, value in line.kwargs for name in tensors(value)))
            for name in (*given, *made):
                self.owner[name].is_shown = True

    def begin(self, name: str, making: Making, owner: Owner, birth: int) -> None:
        life = self.owner[name] = _Life(self.sizes.get(name, integer(0)), owner, birth)
        self.found.append(life)
        life.names[name] = Name(name, making, "", self.calls)
        life.held.add(name)

    def join(self, name: str, making: Making, of: str) -> None:
        life = self.owner[name] = self.owner[of]
        life.names[name] = Name(name, making, of, self.calls)
        life.held.add(name)

    def drop(self, name: str) -> None:
        life = self.owner.pop(name)
        life.names[name] = replace(life.names[name], end=self.calls)
        life.held.discard(name)
        if not life.held:
            life.death = self.calls
