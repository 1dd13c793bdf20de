"""The loop nest of a kernel, as data. `tile` chooses it; codegen prints it and decides nothing.

Takes loops, and positions of ops in the kernel's body; or the text of a schedule. Gives a tree of loops with positions
at its leaves, or the text. A position may stand in several loops: the op is then computed again in each of them.
Refuses text that is not a schedule, with ValueError.

The text, which `str` writes and `parse_schedule` reads:

    schedule ::= step* ["rows" position*] ["parts" N*] ["dots" position*]
    step     ::= position | loop                         "%3": compute op 3 here; for a reduce: accumulate here
    loop     ::= kind AXIS ["by" N | "parts" N] ["lanes" N] ["carry" position*] ["unmasked" position*]
                 ["cut" ("<" expression ">")*] "{" step* "}"
    kind     ::= "parallel" | "serial" | "vector" | "scalar" | "tree" | "grid" | "tile"

The kinds of loops on a CPU:

- `parallel`: threads share the blocks of the axis. `serial`: one after the other. `vector`: SIMD lanes.
- `scalar`: a serial loop that the C++ compiler must not vectorise.
- `tree`: a loop over one block of a serial loop, which stands in a vector loop. The values of a whole block are
  combined pairwise, as a tree, and the result with the accumulators. The rest of the axis is combined one by one.

The words in the head of a loop:

- `by N`: the loop runs over blocks of N elements. `parts N`: over at most N equal blocks. An inner loop over the same
  axis runs through one block.
- `carry`: reductions and scans whose accumulators are made before the loop and are complete after it. A parallel loop
  has accumulators for each block, and combines them afterwards in a fixed order. An inner loop may carry the same
  reduction again: it then has accumulators of its own and adds them to the outer ones at its end, so that sums stay
  short.
- `lanes N`: a reduction along this vector loop has N accumulators.
- `unmasked`: masked ops whose conditions do not depend on the loop. If all of them hold, a copy of the loop without
  masks runs.
- `cut`: the loop runs in pieces, which end at these values of the axis. Within a piece an index is a simpler
  expression.

The words after the steps:

- `rows` (field `kept_rows`): ops whose values are kept in an array, one element for each iteration of the loop that
  computes them, because a later loop reads them.
- `parts`: the steps, counted from 0, at which an independent kernel of a bundle begins (see bundled.py).
- `dots`: sums of products that a matrix unit computes from the factors (see dots.py); the products exist nowhere.

On a GPU the outermost loops are `grid`: one program of the grid for each block of N elements. The ops inside are
computed for a whole tile at once. A `tile` loop is one block that holds the whole axis. A `serial ... by N` inside a
grid goes from block to block.

>>> text = "parallel i0 {\\n  vector i1 lanes 64 carry %1 {\\n    %0 %1\\n  }\\n  %2\\n}\\nrows %0"
>>> str(parse_schedule(text)) == text
True
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal, TypeAlias, cast

from minductor.core.expressions.expr import Expr, Symbol
from minductor.core.expressions.expr_parser import parse_expr

LoopKind: TypeAlias = Literal["parallel", "serial", "vector", "scalar", "tree", "grid", "tile"]
KINDS: tuple[LoopKind, ...] = ("parallel", "serial", "vector", "scalar", "tree", "grid", "tile")


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop over a kernel axis; if it is blocked, a loop over the same axis stands inside. See the module's text."""

    axis: str
    kind: LoopKind
    body: tuple[Step, ...]
    block: int = 0
    parts: int = 0
    lanes: int = 0
    carries: tuple[int, ...] = ()
    unmasked: tuple[int, ...] = ()
    cuts: tuple[Expr, ...] = ()

    @property
    def is_blocked(self) -> bool:
        return self.block > 0 or self.parts > 0


# The position of an op of the body, or a loop.
Step: TypeAlias = "int | Loop"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of a kernel in order, and the facts about them that the module's text describes."""

    steps: tuple[Step, ...]
    kept_rows: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()
    dots: tuple[int, ...] = ()

    def __str__(self) -> str:
        lines = list(_lines(self.steps, ""))
        if self.kept_rows:
            lines.append(f"rows {print_positions(self.kept_rows)}")
        if self.parts:
            lines.append(f"parts {' '.join(map(str, self.parts))}")
        if self.dots:
            lines.append(f"dots {print_positions(self.dots)}")
        return "\n".join(lines)


def positions(steps: Iterable[Step]) -> Iterator[int]:
    """The position of each op that the steps compute, in order, with repeats."""
    for step in steps:
        if isinstance(step, Loop):
            yield from positions(step.body)
        else:
            yield step


def loops(steps: Iterable[Step]) -> Iterator[Loop]:
    """Each loop in the steps, an outer one before its inner ones."""
    for step in steps:
        if isinstance(step, Loop):
            yield step
            yield from loops(step.body)


def tiled_axes(schedule: Schedule) -> tuple[str, ...]:
    """The axes of the grid of which each program of a GPU computes a block of more than one element."""
    return tuple(dict.fromkeys(loop.axis for loop in loops(schedule.steps) if loop.kind == "grid" and loop.block > 1))


def moved(schedule: Schedule, places: Sequence[int] | Mapping[int, int], axes: Mapping[str, str]) -> Schedule:
    """The schedule for a body in which op n has moved to `places[n]` and axis a is named `axes[a]`."""

    def placed(old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(places[p] for p in old)

    def steps(old: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            replace(s, axis=axes[s.axis], body=steps(s.body), carries=placed(s.carries), unmasked=placed(s.unmasked))
            if isinstance(s, Loop)
            else places[s]
            for s in old
        )

    return Schedule(steps(schedule.steps), placed(schedule.kept_rows), schedule.parts, placed(schedule.dots))


def print_positions(values: Iterable[int]) -> str:
    """The text of positions of ops: %0 %3."""
    return " ".join(f"%{p}" for p in values)


def _lines(steps: Iterable[Step], indent: str) -> Iterator[str]:
    run: list[int] = []
    for step in steps:
        if not isinstance(step, Loop):
            run.append(step)
            continue
        if run:
            yield indent + print_positions(run)
            run = []
        yield indent + _head(step)
        yield from _lines(step.body, indent + "  ")
        yield indent + "}"
    if run:
        yield indent + print_positions(run)


def _head(loop: Loop) -> str:
    text = f"{loop.kind} {loop.axis}"
    if loop.block:
        text += f" by {loop.block}"
    if loop.parts:
        text += f" parts {loop.parts}"
    if loop.lanes:
        text += f" lanes {loop.lanes}"
    if loop.carries:
        text += f" carry {print_positions(loop.carries)}"
    if loop.unmasked:
        text += f" unmasked {print_positions(loop.unmasked)}"
    if loop.cuts:
        text += f" cut {' '.join(f'<{at}>' for at in loop.cuts)}"
    return text + " {"


_TOKEN = re.compile(r"%\d+|\w+|[{}]|<[^<>]+>")
_NO_SYMBOLS: Mapping[str, Symbol] = {}


def parse_schedule(text: str, symbols: Mapping[str, Symbol] = _NO_SYMBOLS) -> Schedule:
    """The schedule that `str` printed. `symbols`: the symbols that `cut` may name."""
    if leftover := _TOKEN.sub("", text).strip():
        raise ValueError(f"not a schedule: {leftover!r}")
    tokens = _TOKEN.findall(text)
    steps, at = _steps(tokens, 0, symbols)
    rows: list[int] = []
    if at < len(tokens) and tokens[at] == "rows":
        rows, at = _numbers(tokens, at + 1)
    parts: list[int] = []
    if at < len(tokens) and tokens[at] == "parts":
        parts = [int(token) for token in takewhile(str.isdecimal, tokens[at + 1 :])]
        at += 1 + len(parts)
    dots: list[int] = []
    if at < len(tokens) and tokens[at] == "dots":
        dots, at = _numbers(tokens, at + 1)
    if at != len(tokens):
        raise ValueError(f"not a schedule: {' '.join(tokens[at:])!r} is left over")
    return Schedule(steps, tuple(rows), tuple(parts), tuple(dots))


def _steps(tokens: list[str], at: int, symbols: Mapping[str, Symbol]) -> tuple[tuple[Step, ...], int]:
    steps: list[Step] = []
    while at < len(tokens):
        token = tokens[at]
        if token.startswith("%"):
            steps.append(int(token[1:]))
            at += 1
        elif token in KINDS:
            loop, at = _loop(tokens, at, symbols)
            steps.append(loop)
        else:
            break
    return tuple(steps), at


def _loop(tokens: list[str], at: int, symbols: Mapping[str, Symbol]) -> tuple[Loop, int]:
    kind, axis = cast("LoopKind", tokens[at]), _token(tokens, at + 1)
    at += 2
    numbers = {"by": 0, "parts": 0, "lanes": 0}
    named: dict[str, list[int]] = {"carry": [], "unmasked": []}
    cuts: tuple[Expr, ...] = ()
    while (word := _token(tokens, at)) != "{":
        if word in named:
            named[word], at = _numbers(tokens, at + 1)
        elif word == "cut":
            texts = list(takewhile(lambda token: token.startswith("<"), tokens[at + 1 :]))
            cuts = tuple(parse_expr(text[1:-1], symbols) for text in texts)
            at += 1 + len(texts)
        elif word in numbers and _token(tokens, at + 1).isdecimal():
            numbers[word] = int(tokens[at + 1])
            at += 2
        else:
            raise ValueError(f"not a schedule: {word!r} in the head of the loop over {axis}")
    body, at = _steps(tokens, at + 1, symbols)
    if _token(tokens, at) != "}":
        raise ValueError(f"not a schedule: the loop over {axis} does not end before {tokens[at]!r}")
    block, parts, lanes = numbers.values()
    carries, unmasked = (tuple(found) for found in named.values())
    return Loop(axis, kind, body, block, parts, lanes, carries, unmasked, cuts), at + 1


def _numbers(tokens: list[str], at: int) -> tuple[list[int], int]:
    found: list[int] = []
    while at < len(tokens) and tokens[at].startswith("%"):
        found.append(int(tokens[at][1:]))
        at += 1
    return found, at


def _token(tokens: list[str], at: int) -> str:
    if at >= len(tokens):
        raise ValueError("not a schedule: the text ends too early")
    return tokens[at]
