"""A hypothesis strategy of random programs over tensors, and such programs by number.

Takes what the programs may contain. Gives Programs that eager runs, on values that stay small. Refuses unknown names of
families (ValueError). A line that eager refuses is drawn again, and left out after a few trials.

    from hypothesis import given
    from pytest_plugin.strategies import programs
    from pytest_plugin.random_programs.verdict import assert_like_eager

    @given(programs())
    def test_my_compiler(program):
        assert_like_eager(program, lambda fn: torch.compile(fn, backend="mine", fullgraph=True))

A failure shrinks to a small program that prints as a script. `numbered(17, programs())` is the 17th program, the same
on every machine.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from unittest import mock

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from pytest_plugin.random_programs.grammar import FAMILIES, Family
from pytest_plugin.random_programs.programs import Input, Node, Program

T = TypeVar("T")

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool")
FLOATS = ("float32", "float64", "float32", "bfloat16")
EXTENTS = (3, 4, 1, 2, 5, 7, 8, 0, 16, 17, 33, 65)
# Sizes at which loops are cut into blocks and run on several threads.
LARGE_EXTENTS = (64, 100, 16, 3, 1, 129, 257, 1024, 1031, 4100)
LARGE_INPUT = 150_000  # elements
TRIALS = 4  # for each line


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of programs to draw; `programs` describes the fields."""

    least: int = 10
    most: int = 40
    dtypes: Sequence[str] = DTYPES
    differentiable: bool = False
    scalable: bool = False
    large: bool = False
    families: Sequence[Family] = FAMILIES

    @property
    def extents(self) -> Sequence[int]:
        """The sizes that dimensions may have."""
        return LARGE_EXTENTS if self.large else EXTENTS

    @property
    def largest(self) -> int:
        """The most elements that a tensor may have."""
        return 400_000 if self.large else 20_000


def programs(
    *,
    length: tuple[int, int] = (10, 40),
    dtypes: Sequence[str] = DTYPES,
    differentiable: bool = False,
    scalable: bool = False,
    large: bool = False,
    without: Sequence[str] = (),
) -> st.SearchStrategy[Program]:
    """Makes a strategy of random programs. Drawing a program runs each of its lines in eager.

    Args:
        length: The least and the largest number of lines.
        dtypes: The dtypes of inputs.
        differentiable: Whether programs have gradients, which are compared too.
        scalable: Whether lines name no sizes, so that one compilation must serve other sizes.
        large: Whether tensors are so large that loops are cut into blocks and run on several threads.
        without: Names of families of lines that are not drawn, such as "writes"; random_programs/grammar.py has them.

    Returns:
        The strategy.

    Raises:
        ValueError: There is no family of that name.
    """
    unknown = set(without) - {family.name for family in FAMILIES}
    if unknown:
        raise ValueError(
            f"there is no family {', '.join(sorted(unknown))}; see pytest_plugin/random_programs/grammar.py"
        )
    families = tuple(family for family in FAMILIES if family.name not in without)
    return _programs(Kind(*length, dtypes, differentiable, scalable, large, families))


def numbered(number: int, strategy: st.SearchStrategy[Program]) -> Program:
    """Returns the program that hypothesis generates from a seed.

    Args:
        number: The seed.
        strategy: A strategy that `programs` made.

    Returns:
        The program; it is the same in every process and on every machine.
    """
    found: list[Program] = []

    @seed(number)
    @settings(
        max_examples=2,  # the first one is the smallest possible program, whatever the seed
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
    )
    @given(strategy)
    def collect(program: Program) -> None:
        found.append(program)

    # hypothesis draws numbers that occur in loaded modules, and another process has loaded others.
    with mock.patch.object(providers.HypothesisProvider, "_maybe_draw_constant", _no_constant, create=True):
        collect()
    return found[-1]


def campaign_program(number: int) -> Program:
    """Returns the program of a number in a campaign of `--fuzz`. Three kinds of programs take turns.

    Args:
        number: The number, from 0 on.

    Returns:
        The program.
    """
    match number % 3:
        case 0:
            return numbered(number, programs(length=(8, 30)))
        case 1:
            return numbered(number, programs(differentiable=True, length=(8, 20)))
        case _:
            return numbered(number, programs(scalable=True, length=(8, 20)))


def _no_constant(*args: object, **kwargs: object) -> None:
    return None


@st.composite
def _programs(draw: st.DrawFn, kind: Kind) -> Program:
    return _Drawing(draw, kind).program()


class _Drawing:
    """A program that is being drawn. Each line runs when it is drawn, so that the next lines know sizes and dtypes."""

    def __init__(self, draw: st.DrawFn, kind: Kind) -> None:
        self.draw, self.kind = draw, kind
        self.nodes: list[Node] = []
        self.inputs = self._inputs()
        self.start = Program(tuple(self.inputs), (), (), kind.differentiable, kind.scalable)
        self.space = self.start.space()
        self.names = [given.name for given in self.inputs]

    def program(self) -> Program:
        for _ in range(self._number(self.kind.most - self.kind.least + 1) + self.kind.least):
            for _ in range(TRIALS):
                node = self._line()
                if node is not None and self._runs(node):
                    self.nodes.append(node)
                    if not node.writes:
                        self.names.append(node.target)
                    break
        made = replace(self.start, nodes=tuple(self.nodes), outputs=self._outputs())
        return _with_gradients(made) if self.kind.differentiable else made

    def _number(self, count: int) -> int:
        return self.draw(st.integers(0, count - 1))

    def _one(self, values: Sequence[T]) -> T:
        return values[self._number(len(values))]

    def _inputs(self) -> list[Input]:
        extents = [self._one(self.kind.extents) for _ in range(3)]
        if self.kind.large:
            a, b, c = extents
            b = min(b, LARGE_INPUT // a)
            extents = [a, b, min(c, LARGE_INPUT // (a * b))]
        found: list[Input] = []
        for n in range(1 + self._number(4)):
            found.append(Input(f"x{n}", self._expression(extents, n, found)))
        return found

    def _expression(self, extents: Sequence[int], n: int, earlier: Sequence[Input]) -> str:
        dtype = self._one(FLOATS if self.kind.differentiable else self.kind.dtypes)
        a, b, c = (extents[(n + k) % 3] for k in range(3)) if self._number(2) else extents

        def tensor(*shape: int) -> str:
            return f"tensor({tuple(shape)}, torch.{dtype}, '{chr(97 + n)}')"

        forms = (
            tensor(a, b),
            tensor(a, b),
            tensor(a),
            tensor(a, b, c),
            f"{tensor(b, a)}.t()",
            f"{tensor(a, 2 * b + 1)}[:, 1::2]",
            f"{tensor(c, a, b)}.permute(1, 2, 0)",
            f"{tensor(a, 1)}.expand({a}, {b})",
            f"{tensor(a + 2, b)}[2:]",
            f"{tensor(2, a, b)}[1]",
            tensor(),
        )
        shared = (f"{earlier[-1].name}[1:]", f"{earlier[-1].name}[...]") if earlier else ()
        # Two arguments that share a storage. With gradients, eager itself refuses writes to them.
        if shared and not self.kind.differentiable and "()" not in earlier[-1].expression and not self._number(16):
            return self._one(shared)
        return self._one(forms)

    def _line(self) -> Node | None:
        weighted = [family for family in self.kind.families for _ in range(family.weight)]
        family = self._one(weighted)
        fitting = [name for name in self.names if _kind_of(self.space[name]) in family.takes]
        if not fitting:
            return None
        texts = family.texts
        if self.kind.scalable:
            texts = tuple(text for text in texts if not re.search(r"\{[sn]\}|:\d|tensor_split|unfold|topk", text))
        text = self._one(texts)
        # Recent values are preferred: long chains of operations find more faults than wide programs.
        recent = fitting[-4:] if self._number(3) else fitting
        a = recent[-1 - self._number(len(recent))]
        value = self.space[a]
        like = [name for name in self.names if _broadcasts(self.space[name], value)]
        b, c = (like[-1 - self._number(len(like))] for _ in range(2))
        rank = max(value.dim(), 1)
        d, e, m = self._number(rank), self._number(rank), 1 + self._number(3)
        d = d - rank if self._number(3) == 2 else d
        size = value.shape[d] if value.dim() else 1
        fill: Mapping[str, object] = {
            "a": a,
            "b": b,
            "c": c,
            "d": d,
            "e": e,
            "m": m,
            "n": self._number(size) if size and "{n}" in text else 0,
            "s": self._shape(value.numel()) if "{s}" in text else (),
            "j": f"(({b}.float().abs() * 3).long().expand_as({a}) % {a}.shape[{d}])",
        }
        for key, text_of in fill.items():
            text = text.replace("{" + key + "}", str(text_of))
        target = a if family.writes else f"t{len(self.nodes)}"
        return Node(target, text, family.name, family.writes, family.rounds)

    def _shape(self, count: int) -> tuple[int, ...]:
        rows = self._one([n for n in (1, 2, 3, 4, 8) if count % n == 0])
        return (rows, count // rows) if self._number(3) else (count // rows, 1, rows)

    def _runs(self, node: Node) -> bool:
        """Tells whether eager runs the line on values that stay small; if not, nothing has changed."""
        import torch

        tensors = {t.untyped_storage().data_ptr(): t for t in self._tensors(self.space)} if node.writes else {}
        before = [(t.untyped_storage(), t.untyped_storage().clone()) for t in tensors.values()]
        trial = dict(self.space)
        try:
            with warnings.catch_warnings(), torch.set_grad_enabled(self.kind.differentiable):
                # Warnings are ignored, since some occur once in a process and must not change which lines are drawn.
                warnings.simplefilter("ignore")
                if not node.writes and not self._fits(node):
                    return False
                exec(node.line, trial)
            result = trial[node.target]
            fits = isinstance(result, torch.Tensor) and result.numel() <= self.kind.largest
            if fits and all(_is_small(t) for t in (self._tensors(trial) if node.writes else [result])):
                self.space = trial
                return True
        except Exception:  # eager's refusal
            pass
        for storage, value in before:
            storage.copy_(value)
        return False

    def _fits(self, node: Node) -> bool:
        """Tells by shapes alone whether the result is small enough; computing it could exhaust the memory."""
        import torch

        read = set(re.findall(r"\b[a-z]\d+\b", node.text))
        shapes = {name: value.detach().to("meta") if name in read else value for name, value in self.space.items()}
        try:
            with torch.device("meta"):
                return eval(node.text, shapes).numel() <= self.kind.largest
        except Exception:  # the shape depends on values, or eager refuses the line
            return True

    @staticmethod
    def _tensors(space: Mapping[str, Any]) -> list[Any]:
        import torch

        return [value for value in space.values() if isinstance(value, torch.Tensor)]

    def _outputs(self) -> tuple[str, ...]:
        """Returns the names that no line reads, and a few others; sometimes an argument, sometimes a name twice."""
        read = " ".join(node.text for node in self.nodes)
        loose = [name for name in self.names if name.startswith("t") and not re.search(rf"\b{name}\b", read)]
        chosen = [self._one(self.names[::-1]) for _ in range(1 + self._number(3))]
        return tuple([*loose[-5:], *chosen])


def _with_gradients(program: Program) -> Program:
    """Removes the last writes while they change values that the backward pass still needs."""
    from pytest_plugin.oracle import reference_runs

    def is_refused(trial: Program) -> bool:
        subject = reference_runs.OwnedCall(trial.fn(), tuple(trial.arguments()), {})
        try:
            reference_runs.run_call(subject, subject.fn, grad=True)
        except Exception:  # eager's refusal
            return True
        return False

    while any(node.writes for node in program.nodes) and is_refused(program):
        last = max(n for n, node in enumerate(program.nodes) if node.writes)
        program = replace(program, nodes=program.nodes[:last] + program.nodes[last + 1 :])
    return program


def _kind_of(tensor: Any) -> str:
    import torch

    if tensor.dtype == torch.bool:
        return "b"
    return "f" if tensor.is_floating_point() else "i"


def _broadcasts(one: Any, other: Any) -> bool:
    sizes = zip(reversed(one.shape), reversed(other.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in sizes)


def _is_small(tensor: Any) -> bool:
    """Tells whether values are small enough for casts to integers and comparisons of sums to mean something."""
    if not tensor.numel() or not tensor.is_floating_point():
        return True
    return bool((tensor.detach().nan_to_num(0.0).abs() < 100).all())
