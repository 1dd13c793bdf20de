"""Measures the choices of a program before its wrapper is written, for wrappers and packages that measure nothing.

Takes a program, its plan, and what compiles and loads kernels. Gives the program with the fastest variant of each
kernel in the place of the kernel. Refuses nothing: what cannot be measured takes its default.

Each dispatch is run by itself, on new tensors with the layouts of its operands: random floats, and zeros as integers,
which are places that exist. Sizes that only the call knows are estimated. The store keeps the winners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minductor.ir.plan.plan import DispatchLine, KernelLine, LaunchLine, Plan, ReturnLine
from minductor.ir.program.choices import Option
from minductor.ir.program.nodes import Input, Program
from minductor.ir.program.variant_note import Decider, VariantNote
from minductor.ir.program.variants import kernels_with_variants, select_variants
from minductor.pipeline import resolve

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from minductor.backends import Backend
    from minductor.core.expressions.hints import Hints
    from minductor.driver_tasks.artefacts import Artefacts
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.ir.program.nodes import Buffer
    from minductor.target import Env


def with_measured_choices(
    program: Program, plan: Plan, graph: Graph, env: Env, backend: Backend, artefacts: Artefacts
) -> Program:
    """The program whose measured choices are made; the same object if it has none. `plan`: the plan of the program."""
    from minductor.frontend.quirks.torch_versions import real_tensors

    if "python" not in backend.wrappers:  # it is the wrapper that measures
        return _settled(program, plan, lambda line: line.choice.default, "cost")
    table, hints = dict(_buffers(program)), program.hints
    bench = _Bench(plan, table, hints, graph, env, backend, artefacts)
    with real_tensors():
        return _settled(program, plan, bench.winner, "measure")


def _settled(program: Program, plan: Plan, winner: Callable[[DispatchLine], Option], by: Decider) -> Program:
    """The program, and its regions, with the winners in the place of choices. `by`: what decided."""
    regions = tuple(_settled(*pair, winner, by) for pair in zip(program.regions, plan.regions, strict=True))
    dispatches = (line for line in plan.lines if isinstance(line, DispatchLine))
    pairs = list(zip(kernels_with_variants(program.nodes), dispatches, strict=True))
    picks = {kernel.name: str(winner(line)) for kernel, line in pairs if line.choice.by_size is None}
    if not picks and all(new is old for new, old in zip(regions, program.regions, strict=True)):
        return program
    notes = [
        VariantNote("choices", kernel.name, picks[kernel.name], by, tuple(map(str, line.choice.options)))
        for kernel, line in pairs
        if kernel.name in picks
    ]
    made = select_variants(program, picks, keeps_others=True)
    return replace(made, regions=regions, notes=(*program.notes, *notes))


@dataclass(frozen=True, slots=True)
class _Bench:
    """What runs one dispatch of a plan by itself."""

    plan: Plan
    table: Mapping[str, Buffer]
    hints: Hints
    graph: Graph
    env: Env
    backend: Backend
    artefacts: Artefacts

    def winner(self, line: DispatchLine) -> Option:
        """The option of a dispatch that is measured to be the fastest."""
        from minductor.core.expressions.hints import estimate
        from minductor.ir.artefact.source import Source

        env = replace(self.env, options=replace(self.env.options, wrapper="python", events=False, verify_memory=""))
        inputs = (*map(Input, line.tensors), *(Input(size.name, size) for size in line.sizes))
        kernels = tuple(each for each in self.plan.lines if isinstance(each, KernelLine) and each.id in _launched(line))
        alone = Plan("choice", inputs, (*kernels, line, ReturnLine(())), self.plan.kernels)
        units = tuple(resolve(self.backend.kernels)(alone, env))
        source = Source(units, resolve(self.backend.wrappers["python"])(alone, env), "py")
        is_launched = env.target.kind == "cuda"

        def build(folder: Path) -> dict[str, bytes]:
            return self.artefacts.build(source, alone, self.graph, env, None, folder, is_launched=is_launched)

        tuner, files = self.artefacts.tuner(env), self.artefacts.store_of(env).in_scratch(build)
        tensors = [_tensor(self.table[name], self.hints) for name in line.tensors]
        numbers = [estimate(size, self.hints) if size.kind != "real" else 1.0 for size in line.sizes]
        self.artefacts.run_once(files, env, [*tensors, *numbers], tuner)
        winners = (won for work, won in tuner.winners.items() if work.startswith(line.digest))
        return next(winners, str(line.choice.default))


def _launched(line: DispatchLine) -> set[str]:
    """The ids of the kernels that a dispatch may launch."""
    return {inner.kernel for group in line.variants for inner in group if isinstance(inner, LaunchLine)}


def _tensor(buffer: Buffer, hints: Hints) -> torch.Tensor:
    """A new tensor of a buffer's layout."""
    import torch

    from minductor.core.expressions.hints import estimate

    dtype = getattr(torch, buffer.dtype.torch_name)
    size = [estimate(n, hints) for n in buffer.size]
    stride = [estimate(n, hints) for n in buffer.stride]
    made = torch.empty_strided(size, stride, dtype=dtype, device=buffer.device)
    if not (dtype.is_floating_point or dtype.is_complex):
        return made.zero_()
    return made.copy_(torch.randn(size, device=buffer.device, generator=_generator(buffer.device)))


def _generator(device: str) -> torch.Generator:
    """Random numbers of their own: those of the user's go on as if nothing had been measured."""
    import torch

    return torch.Generator(device).manual_seed(0)


def _buffers(program: Program) -> Iterator[tuple[str, Buffer]]:
    """The buffers of a program and its regions, with those of their variants, by name."""
    yield from program.real_table().items()
    for region in program.regions:
        yield from _buffers(region)
