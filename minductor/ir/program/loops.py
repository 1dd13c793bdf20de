"""The loop nest of a kernel, as data. Stage `schedule` chooses it; codegen prints it and decides nothing.

Takes loops, and positions of ops in the kernel's body; or the text of a schedule. Gives a tree of loops with positions
at its leaves, or the text. A position may stand in several loops: the op is then computed again in each of them.
Refuses text that is not a schedule, with ValueError.

The text, which `str` writes and `parse_schedule` reads:

    schedule ::= step* ["rows" position*] ["results" position*] ["parts" N* ["finish" N]] ["dots" position*]
                 ["recipe" NAME]
    step     ::= position | loop                         "%3": compute op 3 here; for a reduce: accumulate here
    loop     ::= kind AXIS ["by" N | "parts" N] ["most" "<" expression ">"] ["lanes" N] ["carry" position*]
                 ["unmasked" position*] ["fetch" position*] ["stages" N] ["cut" ("<" expression ">")*] ["whole"]
                 ["aligned" N "at" position] "{" step* "}"
    kind     ::= "parallel" | "serial" | "vector" | "scalar" | "tree" | "grid" | "tile"

The kinds of loops on a CPU:

- `parallel`: threads share the blocks of the axis. `serial`: one after the other. `vector`: SIMD lanes.
- `scalar`: a serial loop that the C++ compiler must not vectorise.
- `tree`: a loop over one block of a serial loop, which stands in a vector loop. The values of a whole block are
  combined pairwise, as a tree, and the result with the accumulators. The rest of the axis is combined one by one.

The words in the head of a loop:

- `by N`: the loop runs over blocks of N elements. `most <n>`: of n elements if that is less, but of one at least;
  only the call knows n. `parts N`: over at most N equal blocks. An inner loop over the same
  axis runs through one block.
- `carry`: reductions and scans whose accumulators are made before the loop and are complete after it. A parallel loop
  has accumulators for each block, and combines them afterwards in a fixed order. An inner loop may carry the same
  reduction again: it then has accumulators of its own and adds them to the outer ones at its end, so that sums stay
  short.
- `lanes N`: a reduction along this vector loop has N accumulators. Along a serial loop it has N accumulators for each
  element of the vector loop inside; element e of the serial loop goes to accumulator e % N in both.
- `unmasked`: masked ops whose conditions do not depend on the loop. If all of them hold, a copy of the loop without
  masks runs.
- `fetch`: loads at loaded places in one row of memory. The whole row is asked into the cache before the loop.
- `stages N`: on a GPU, the loop is a software pipeline of N stages: while the values of one block are computed, the
  loads of the next N - 1 blocks are under way, into shared memory.
- `cut`: the loop runs in pieces, which end at these values of the axis. Within a piece an index is a simpler
  expression. A piece begins where those before it end, so it is empty if its end lies before theirs.
- `whole`: the loop runs through a whole block even where the axis ends earlier. Its ops touch arrays only, and nobody
  reads the elements past the end of the axis.
- `aligned N at %p`: the tile is the bulk of a row, which starts at a multiple of N elements of what the load or store
  at %p touches. The ops of the loop run once more for the edges of the row (see aligned_rows.py).

The words after the steps:

- `rows` (field `kept_rows`): ops whose values are kept in an array, one element for each iteration of the loop that
  computes them, because a later loop reads them.
- `results` (field `rows_in_results`): pairs of such an op and a store behind its last reader. The values are kept where
  the store will write, and not in an array.
- `parts`: the steps, counted from 0, at which an independent kernel of a bundle begins (see bundled.py).
- `finish` (field `finishing`): so many of the parts at the end are not independent. On a GPU, the program of the other
  parts that ends last runs them, one after the other, when all other programs have stored their results.
- `blocks of i1` (field `finishing_blocks`): programs with the same block of this axis are counted by themselves, and
  the one of them that ends last runs the same block of the last part.
- `dots`: sums of products that a matrix unit computes from the factors (see dots.py); the products exist nowhere.
- `recipe`: by which recipe of stage `schedule` the loops were chosen. Two schedules with equal loops are equal.

On a GPU the outermost loops are `grid`: one program of the grid for each block of N elements. The ops inside are
computed for a whole tile at once. A `tile` loop is one block that holds the whole axis. A `serial ... by N` inside a
grid goes from block to block.

>>> text = "parallel i0 {\\n  vector i1 lanes 64 carry %1 {\\n    %0 %1\\n  }\\n  %2\\n}\\nrows %0"
>>> str(parse_schedule(text)) == text
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, cast

from minductor.core.expressions.expr import Expr, Symbol
from minductor.core.expressions.expr_parser import Tokens, read_expr, read_whole

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
    fetched: tuple[int, ...] = ()
    cuts: tuple[Expr, ...] = ()
    is_whole: bool = False
    aligned: int = 0
    reference: int = 0
    stages: int = 0
    most: Expr | None = None

    @property
    def is_blocked(self) -> bool:
        return self.block > 0 or self.parts > 0

    @property
    def own_positions(self) -> tuple[int, ...]:
        """The positions of the ops that stand in the loop itself, not in a loop further in."""
        return tuple(step for step in self.body if not isinstance(step, Loop))


# The position of an op of the body, or a loop.
Step: TypeAlias = "int | Loop"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of a kernel in order, and the facts about them that the module's text describes."""

    steps: tuple[Step, ...]
    kept_rows: tuple[int, ...] = ()
    rows_in_results: tuple[tuple[int, int], ...] = ()
    parts: tuple[int, ...] = ()
    finishing: int = 0
    finishing_blocks: str = ""
    dots: tuple[int, ...] = ()
    recipe: str = field(default="", compare=False)

    def __str__(self) -> str:
        lines = list(_lines(self.steps, ""))
        if self.kept_rows:
            lines.append(f"rows {print_positions(self.kept_rows)}")
        if self.rows_in_results:
            lines.append(f"results {print_positions(p for pair in self.rows_in_results for p in pair)}")
        if self.parts:
            finish = f" finish {self.finishing}" if self.finishing else ""
            finish += f" blocks of {self.finishing_blocks}" if self.finishing_blocks else ""
            lines.append(f"parts {' '.join(map(str, self.parts))}{finish}")
        if self.dots:
            lines.append(f"dots {print_positions(self.dots)}")
        if self.recipe:
            lines.append(f"recipe {self.recipe}")
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


def edited(steps: Iterable[Step], edit: Callable[[Loop], Sequence[Step]]) -> tuple[Step, ...]:
    """The steps with what `edit` makes of each loop in the place of the loop, inner loops first."""
    made: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            body = edited(step.body, edit)
            made += edit(step if body == step.body else replace(step, body=body))
        else:
            made.append(step)
    return tuple(made)


def tiled_axes(schedule: Schedule) -> tuple[str, ...]:
    """The axes of the grid of which each program of a GPU computes a block of more than one element."""
    return tuple(dict.fromkeys(loop.axis for loop in loops(schedule.steps) if loop.kind == "grid" and loop.block > 1))


def moved(schedule: Schedule, places: Sequence[int] | Mapping[int, int], axes: Mapping[str, str]) -> Schedule:
    """The schedule for a body in which op n has moved to `places[n]` and axis a is named `axes[a]`."""

    def placed(old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(places[p] for p in old)

    def steps(old: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            replace(
                s,
                axis=axes[s.axis],
                body=steps(s.body),
                carries=placed(s.carries),
                unmasked=placed(s.unmasked),
                fetched=placed(s.fetched),
                reference=places[s.reference] if s.aligned else 0,
            )
            if isinstance(s, Loop)
            else places[s]
            for s in old
        )

    return replace(
        schedule,
        steps=steps(schedule.steps),
        kept_rows=placed(schedule.kept_rows),
        rows_in_results=tuple((places[row], places[store]) for row, store in schedule.rows_in_results),
        dots=placed(schedule.dots),
        finishing_blocks=axes.get(schedule.finishing_blocks, ""),
    )


def with_blocks(steps: Iterable[Step], blocks: Mapping[str, int]) -> tuple[Step, ...]:
    """The steps with other sizes of the blocks that a grid's programs take along some axes."""
    return tuple(
        replace(step, block=blocks.get(step.axis, step.block), body=with_blocks(step.body, blocks))
        if isinstance(step, Loop) and step.kind == "grid"
        else step
        for step in steps
    )


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
    numbers = {"by": loop.block, "parts": loop.parts, "lanes": loop.lanes}
    positions = {"carry": loop.carries, "unmasked": loop.unmasked, "fetch": loop.fetched}
    lists = {word: print_positions(found) for word, found in positions.items()}
    lists["stages"] = str(loop.stages or "")
    most = f"most <{loop.most}> " if loop.most is not None else ""
    lists["cut"] = " ".join(f"<{at}>" for at in loop.cuts)
    words = "".join(f"{word} {value} " for word, value in {**numbers, **lists}.items() if value)
    words += "whole " if loop.is_whole else ""
    words += f"aligned {loop.aligned} at %{loop.reference} " if loop.aligned else ""
    return f"{loop.kind} {loop.axis} {words}{most}{{"


_NO_SYMBOLS: Mapping[str, Symbol] = {}


def parse_schedule(text: str, symbols: Mapping[str, Symbol] = _NO_SYMBOLS) -> Schedule:
    """The schedule that `str` printed. `symbols`: the symbols that `cut` may name."""
    return read_whole(text, lambda tokens: read_schedule(tokens, symbols))


def read_schedule(tokens: Tokens, symbols: Mapping[str, Symbol]) -> Schedule:
    """Consumes a schedule and returns it."""
    steps = _read_steps(tokens, symbols)
    rows = read_positions(tokens) if tokens.accept("rows") else ()
    pairs = read_positions(tokens) if tokens.accept("results") else ()
    parts: list[int] = []
    finishing, blocks = 0, ""
    if tokens.accept("parts"):
        while tokens.peek.kind == "number":
            parts.append(int(tokens.take("number")))
        finishing = int(tokens.take("number")) if tokens.accept("finish") else 0
        if tokens.accept("blocks"):
            tokens.expect("of")
            blocks = tokens.take("name")
    dots = read_positions(tokens) if tokens.accept("dots") else ()
    recipe = tokens.take("name") if tokens.accept("recipe") else ""
    stored = tuple(zip(pairs[::2], pairs[1::2], strict=True))
    return Schedule(steps, rows, stored, tuple(parts), finishing, blocks, dots, recipe)


def read_positions(tokens: Tokens) -> tuple[int, ...]:
    """Consumes positions of ops (%0 %3), if any stand here, and returns them."""
    found: list[int] = []
    while tokens.accept("%"):
        found.append(int(tokens.take("number")))
    return tuple(found)


def _read_steps(tokens: Tokens, symbols: Mapping[str, Symbol]) -> tuple[Step, ...]:
    steps: list[Step] = []
    while True:
        steps += read_positions(tokens)
        if tokens.peek.text not in KINDS:
            return tuple(steps)
        steps.append(_read_loop(tokens, symbols))


def _read_loop(tokens: Tokens, symbols: Mapping[str, Symbol]) -> Loop:
    kind, axis = cast("LoopKind", tokens.take("name")), tokens.take("name")
    numbers = {"by": 0, "parts": 0, "lanes": 0, "stages": 0}
    named: dict[str, tuple[int, ...]] = {"carry": (), "unmasked": (), "fetch": ()}
    cuts: list[Expr] = []
    is_whole = False
    aligned = reference = 0
    most: Expr | None = None
    while not tokens.accept("{"):
        word = tokens.take("name")
        if word in named:
            named[word] = read_positions(tokens)
        elif word in numbers:
            numbers[word] = int(tokens.take("number"))
        elif word == "cut":
            while tokens.accept("<"):
                cuts.append(read_expr(tokens, symbols))
                tokens.expect(">")
        elif word == "most":
            tokens.expect("<")
            most = read_expr(tokens, symbols)
            tokens.expect(">")
        elif word == "whole":
            is_whole = True
        elif word == "aligned":
            aligned = int(tokens.take("number"))
            tokens.expect("at")
            (reference,) = read_positions(tokens)
        else:
            raise tokens.error(f"{word!r} in the head of the loop over {axis}")
    body = _read_steps(tokens, symbols)
    tokens.expect("}")
    block, parts, lanes, stages = numbers.values()
    carries, unmasked, fetched = named.values()
    last = (tuple(cuts), is_whole, aligned, reference, stages, most)
    return Loop(axis, kind, body, block, parts, lanes, carries, unmasked, fetched, *last)
