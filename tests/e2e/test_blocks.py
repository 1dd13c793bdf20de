"""Each row of the table of block accesses: counts for sm_90 in every form, and values in Triton's interpreter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import minductor
from minductor.driver import Compiled, Compiler, Role, Stage
from minductor.ir.program.loops import loops
from minductor.ir.program.nodes import Kernel, Program
from minductor.passes.access.access import access
from minductor.passes.bundle.bundle import bundle
from minductor.target import Env
from tests.e2e.block_table import ROWS, Row
from tests.rows import schedule

FORMS = ("offsets", "pointer", "descriptor")
IDS = [row.name for row in ROWS]
# run in every suite; the others by `make test-all`
SHORT = (
    *("view of odd rows", "view turned", "broadcast of both", "sum of (15, 15)", "complex reshape", "flip", "pad"),
    *("part of 3 dims in a row", "part of 3 dims in rows", "rows of sizes of the call"),
)
# an element's own coordinate, divided
DIVIDED = re.compile(r"tl\.(?:load|store)\(.*\bi\d+ (?://|%)")


class Facts(Compiler):
    """A compiler for a machine that is elsewhere, which remembers programs before they have tiles."""

    def __init__(self) -> None:
        self.made: list[Compiled] = []
        self.programs: list[tuple[Program, Env]] = []
        super().__init__(observer=self.made.append, is_dry=True)

    def run_stage(self, stage: Stage, value: Any, role: Role, env: Env) -> Any:
        if stage.name == "schedule":
            self.programs.append((value, env))
        return super().run_stage(stage, value, role, env)

    def count(self, form: str) -> int:
        """How many accesses are spelled in a form if the options ask for it."""
        found = 0
        for program in self.tiled(form):
            found += sum(a.form == form for kernel in kernels(program) for a in kernel.access)
        return found

    def tiled(self, form: str) -> Iterator[Program]:
        """The programs with tiles and accesses as if the options asked for a form."""
        for program, env in self.programs:
            asked = replace(env, options=replace(env.options, block_access=form))
            yield access(bundle(schedule(program, asked), asked), asked)

    def reduced(self) -> int:
        """The axes that programs reduce blocks of."""
        schedules = [kernel.schedule for program in self.tiled("offsets") for kernel in kernels(program)]
        inner = [
            [lp for lp in loops(s.steps) if lp.kind != "grid" and lp.block > 1] for s in schedules if s is not None
        ]
        return sum(len({loop.axis for loop in found}) for found in inner)


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def facts(row: Row, store: Path) -> Facts:
    made = Facts()
    torch._dynamo.reset()
    torch.manual_seed(0)
    options = {"target": "sm_90", "cache_dir": str(store), **dict(row.options)}
    backend = lambda gm, given: made(gm, given, options=options)  # noqa: E731
    with torch.no_grad():
        torch.compile(row.program, backend=backend, dynamic=row.dynamic)(*row.inputs())
    return made


def hold(row: Row, made: Facts) -> None:
    """AssertionError where the counts are not those of the row."""
    (compiled,) = made.made
    report = compiled.report
    assert (report.block_accesses, report.kernels) == (row.accesses, row.kernels)
    if row.tiles is not None:
        assert report.tiles == row.tiles
    if row.reduced is not None:
        assert made.reduced() == row.reduced
    pointers, descriptors = made.count("pointer"), made.count("descriptor")
    assert pointers == (row.accesses if row.pointers is None else row.pointers)
    if row.descriptors is not None:
        assert descriptors == row.descriptors
    assert descriptors <= pointers
    assert bool(DIVIDED.search(compiled.sources["kernels.py"])) == row.is_divided


# every third row, and those whose values are compared too
COUNTED = (*IDS[::3], *SHORT)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=() if row.name in COUNTED else pytest.mark.long) for row in ROWS]
)
def test_counts(row: Row, tmp_path: Path) -> None:
    hold(row, facts(row, tmp_path))


def test_the_blocks_of_a_product_and_those_that_may_be_tried_are_boxes(tmp_path: Path) -> None:
    """96 of 128 rows of each of several matrices: 32 of the 96 lie in one of them, and no 64."""
    row = Row(
        "a product of a part of its rows",
        lambda x, w: x[:, :96].reshape(-1, 256) @ w,
        lambda: (torch.randn(64, 128, 256), torch.randn(256, 512)),
        3,
        options=(("matmul", "native"),),
    )
    (kernel,) = [kernel for program in facts(row, tmp_path).tiled("pointer") for kernel in kernels(program)]
    assert [a.form for a in kernel.access] == ["pointer"] * 3
    options = {choice.id: choice.options for choice in kernel.choices}
    assert (options["i0"], options["i1"]) == ((16, 32), (64, 128, 256))


def test_few_rows_differ_from_what_is_expected_elsewhere() -> None:
    """And each says why."""
    differing = [row for row in ROWS if row.elsewhere is not None]
    assert all(row.because and row.elsewhere != (row.accesses, row.kernels) for row in differing)
    assert not [row.name for row in differing if row.elsewhere and row.kernels > row.elsewhere[1]]
    assert len(differing) <= len(ROWS) / 5


def test_the_table_can_fail(tmp_path: Path) -> None:
    """A sum of two vectors has three accesses in one kernel, and one tile; any other expectation is an error."""
    row = Row("sum", torch.add, lambda: (torch.randn(8), torch.randn(8)), 3, tiles=1)
    made = facts(row, tmp_path)
    hold(row, made)
    wrong = [replace(row, accesses=n) for n in (0, 1, 2, 4, 5)] + [replace(row, kernels=n) for n in (0, 2)]
    for other in (*wrong, replace(row, tiles=2), replace(row, descriptors=2)):
        with pytest.raises(AssertionError):
            hold(other, made)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Compiler]:
    made = Compiler()
    yield made
    made.artefacts.interpreter.close()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "row", [pytest.param(r, id=r.name, marks=() if r.name in SHORT else pytest.mark.long) for r in ROWS]
)
def test_values(row: Row, form: str, interpreter: Compiler, tmp_path: Path) -> None:
    options = {
        "target": "interpret",
        "block_access": form,
        "cache_dir": str(tmp_path),
        "verify": True,
        **dict(row.options),
    }
    torch._dynamo.reset()
    torch.manual_seed(0)
    given = row.inputs()
    backend = lambda gm, i: interpreter(gm, i, options=options)  # noqa: E731
    with torch.no_grad():
        torch.manual_seed(1)
        result = torch.compile(row.program, backend=backend, dynamic=row.dynamic)(*given)
        torch.manual_seed(1)
        torch.testing.assert_close(result, row.program(*given), rtol=2e-5, atol=2e-5)


REAL = ("complex reshape",)
# ptxas 12.9 gives this one 32 registers, whatever it is asked for
SPILLING = (("sum of a product by rows", "descriptor"),)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "row", [pytest.param(r, id=r.name, marks=() if r.name in REAL else pytest.mark.long) for r in ROWS]
)
def test_compiles(row: Row, form: str, tmp_path: Path) -> None:
    """To machine code that has no spills, and that copies by the hardware where there are descriptors."""
    torch._dynamo.reset()
    options = {"block_access": form, "cache_dir": str(tmp_path), **dict(row.options)}
    made = minductor.compile_only(row.program, *row.inputs(), target="sm_90", options=options)
    assert (row.name, form) in SPILLING or all(kernel.spills == 0 for kernel in made.kernels)
    (graph,) = made.graphs
    assert ("cp.async.bulk.tensor" in "".join(k.assembly for k in made.kernels)) == (graph.report.descriptors > 0)
