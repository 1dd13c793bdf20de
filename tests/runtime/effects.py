"""Kernels that write to memory with contents, tuned with a driver and a clock of our own.

Takes effects, the seconds of each candidate, and what is wrong with it. Gives nothing. Refuses (AssertionError) memory
that does not hold what one run leaves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from minductor.codegen.triton.triton_launch import launch_choices_of, launch_metadata
from minductor.core.dtypes import F32, I64
from minductor.core.dtypes import by_name as dtype_of
from minductor.core.expressions.expr import integer
from minductor.ir.artefact.launch_metadata import LAUNCHES, LaunchMetadata, print_launches
from minductor.ir.plan.plan import KernelLine, LaunchLine
from minductor.ir.program.choices import neighbours
from minductor.ir.program.nodes import Buffer, Program, Ref
from minductor.options import Options
from minductor.passes.access.access import access
from minductor.passes.memory.memory import memory
from minductor.runtime.launch.gpu import BINARIES, Binary, Kernels, cubin_name
from minductor.runtime.launch.launch import KERNELS
from minductor.runtime.reference.reference import run_program
from minductor.runtime.tune.tune import Tuner
from minductor.target import Env, by_name
from tests.codegen.cases import Sketch
from tests.rows import schedule

ENV = Env(Options.parse(None, {"autotune": True}, {}), by_name("sm_90"))
KINDS = ("add", "min", "max", "mul", "set")
FAULTS = ("", "does nothing", "writes NaN", "writes everywhere", "raises in the end")


@dataclass(frozen=True)
class Effect:
    """One thing that a kernel does to a storage which holds something."""

    kind: str  # of an atomic, or a kind of store
    is_float: bool

    def add_to(self, sketch: Sketch, number: int) -> None:
        """Writes the storage `held<number>` of 12 elements, from 5 points."""
        name, (i,) = f"held{number}", sketch.i
        dtype, values = (F32, torch.randn(12)) if self.is_float else (I64, torch.arange(12) - 4)
        x = sketch.read("a", torch.randn(5), F32, i) if self.is_float else sketch.read("b", torch.arange(5) % 3, I64, i)
        if self.kind == "in place":
            old = sketch.read(name, values, dtype, 2 * i)
            sketch.b.store(Ref(name, 1), 2 * i, sketch.b.op("add", sketch.b.op("mul", old, old), x))
            return
        if self.kind == "where it is less":
            old = sketch.read(name, values, dtype, i + 3)
            sketch.b.store(Ref(name, 1), i + 3, sketch.b.op("where", sketch.b.op("lt", old, x), x, old))
            return
        sketch.tensors[name] = values
        sketch.buffers.append(Buffer(name, dtype, (integer(12),), (integer(1),), "input"))
        if self.kind == "every second":
            sketch.b.store(Ref(name, 1), 2 * i + 1, x)
            return
        at = sketch.b.check(sketch.read("ids", torch.tensor([3, 0, 3, 11, 3]), I64, i), integer(12), wrap=False)
        sketch.b.atomic(Ref(name, 1), at, x, self.kind)


def program_of(effects: list[Effect]) -> Program:
    sketch = Sketch((5,))
    for number, effect in enumerate(effects):
        effect.add_to(sketch, number)
    return sketch.program()


@dataclass
class Pretended:
    """A driver whose kernels are evaluated by the reference, each launch with a fault of its own."""

    program: Program
    order: tuple[str, ...]  # the tensors of a launch
    launch: LaunchMetadata
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    runs: list[str] = field(default_factory=list[str])
    begins: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])  # what each run has to find
    surprises: list[str] = field(default_factory=list[str])  # where it found something else

    def load(self, binary: bytes, launch: Any) -> int:
        return 0

    def slow(self, row: str, kernel: int, launch: Any, other: Callable[..., int]) -> Callable[..., int]:
        def run(*args: Any) -> int:
            tensors = dict(zip(self.order, args[:-1], strict=True))
            self.runs.append(row)
            self.surprises += [name for name, was in self.begins.items() if not torch.equal(tensors[name], was)]
            match self.faults.get(row, ""):
                case "does nothing":
                    return 0
                case "writes NaN":
                    tensors["held0"].fill_(float("nan") if tensors["held0"].is_floating_point() else -1)
                    return 0
                case "writes everywhere":
                    for name in tensors.keys() - {"a", "b", "ids"}:
                        tensors[name].fill_(7)
                    return 0
                case fault:
                    run_program(self.program, [tensors[given.name] for given in self.program.inputs])
                    if fault:
                        raise RuntimeError(fault)
                    return 0

        return run

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of the default launch and of those one step from it."""
        near = neighbours(self.launch.choices, self.launch.config)
        return (self.launch.name, *(self.launch.configured(config).name for config in near))

    def kernels(self, tuner: Tuner) -> Kernels:
        binary = asdict(Binary("k", threads=32, shared=0))

        def files(launch: LaunchMetadata) -> dict[str, bytes]:
            table = json.dumps({launch.name: binary}).encode()
            return {cubin_name(launch.name): b"", BINARIES: table, KERNELS: b"def k(): ..."}

        driver: Any = self
        whole = {**files(self.launch), LAUNCHES: print_launches([self.launch]).encode()}
        return Kernels(whole, driver, None, files, files, tuner)


def pretended(program: Program) -> Pretended:
    """The choices of the launch are those of the kernel's text in Triton, which has not all of these effects."""
    plan = memory(access(schedule(program, ENV), ENV), ENV)
    (launch,) = (line for line in plan.lines if isinstance(line, LaunchLine))
    (about,) = (line for line in plan.lines if isinstance(line, KernelLine))
    kernel, dtypes = plan.kernels[0][1], {name: dtype_of(dtype) for name, dtype in about.signature}
    return Pretended(program, launch.tensors, launch_metadata(kernel, "k", dtypes, launch_choices_of(kernel, ENV)))


def check(effects: list[Effect], times: list[float], faults: list[str]) -> None:
    program = program_of(effects)
    driver = pretended(program)
    held = {given.name: tensor for given, tensor in zip(program.inputs, given_to(program, effects), strict=True)}
    right = {name: tensor.clone() for name, tensor in held.items()}
    run_program(program, [right[given.name] for given in program.inputs])
    added = (f"held{number}" for number, effect in enumerate(effects) if effect.kind not in ("set", "every second"))
    driver.begins = {name: held[name].clone() for name in added}
    driver.faults = dict(zip(driver.rows[1:], faults, strict=False))
    seconds = dict(zip(driver.rows, times, strict=False))

    def clock(run: Callable[[], object]) -> float:
        run()
        return seconds[driver.runs[-1]]

    tuner = Tuner(clock)
    driver.kernels(tuner).bind("k")(*(held[name] for name in driver.order), 0)
    assert len(driver.rows) > 1 and driver.surprises == []
    assert tuner.measured > 0 or len(tuner.refused) == len(driver.rows) - 1, "somebody was right, or all were wrong"
    for name, tensor in right.items():
        assert torch.equal(held[name], tensor), f"{name} after {driver.faults}: {tuner.refused}"


def given_to(program: Program, effects: list[Effect]) -> list[Tensor]:
    sketch = Sketch((5,))
    for number, effect in enumerate(effects):
        effect.add_to(sketch, number)
    return [sketch.tensors[given.name].clone() for given in program.inputs]
