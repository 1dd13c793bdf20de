"""Traces a function as AOTAutograd does, lowers each graph, and holds its program against the graph run in eager.

Takes a function and tensors. Gives what was lowered. Refuses (by an assertion) a program whose outputs or mutated
inputs differ from eager's in value, dtype, size or stride.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function, aot_module_simplified

from minductor.frontend.capture.capture import capture
from minductor.frontend.capture.captured_graph import Graph
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.frontend.torch_graph.split_joint_graph import split_joint_graph
from minductor.ir.program.nodes import Extern, Kernel, Program
from minductor.options import Options
from minductor.passes.remove_dead_code.remove_dead_code import remove_dead_code
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from tests.rows import lower
from tests.verifying import verify

CPU = Env(Options(), by_name("cpu"))
GPU = Env(Options(), by_name("sm_90"))  # for rules that call ATen on a CPU
# (relative, absolute) to the dtype's own resolution: a program keeps float32 where eager rounds
TOLERANCE = {
    torch.float64: (1e-10, 1e-12),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}


@dataclass
class Lowered:
    """The graphs of one traced function with their programs, forward first."""

    graphs: list[Graph] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)

    @property
    def program(self) -> Program:
        return self.programs[0]

    @property
    def externs(self) -> list[str]:
        """The operators that are called; calls whose results nothing reads are removed behind `lower`."""
        live = (remove_dead_code(program, CPU) for program in self.programs)
        return [n.op for program in live for n in program.nodes if isinstance(n, Extern)]

    @property
    def kernels(self) -> list[Kernel]:
        return [n for p in self.programs for n in p.nodes if isinstance(n, Kernel)]


def lowered(fn: Callable[..., Any], *args: Any, env: Env = CPU) -> Lowered:
    """`fn` traced and run once; tensors that require grad make it a training step on a weighted sum of the result."""
    seen = Lowered()
    compilers = [partial(_compile, seen=seen, role=role, env=env) for role in ("forward", "backward", "inference")]
    traced = aot_function(
        fn,
        fw_compiler=compilers[0],
        bw_compiler=compilers[1],
        inference_compiler=compilers[2],
        partition_fn=split_joint_graph,
        decompositions=decompositions(),
        keep_inference_input_mutations=True,
    )
    backward(traced(*args))
    return seen


def compiled(fn: Callable[..., Any], *args: Any, dynamic: bool = False, env: Env = CPU) -> Lowered:
    """The same through Dynamo; the results are also held against the function's own."""
    seen = Lowered()

    def backend(gm: Any, inputs: Sequence[Any]) -> Any:
        compilers = [partial(_compile, seen=seen, role=role, env=env) for role in ("forward", "backward", "inference")]
        return aot_module_simplified(
            gm,
            inputs,
            fw_compiler=compilers[0],
            bw_compiler=compilers[1],
            inference_compiler=compilers[2],
            partition_fn=split_joint_graph,
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )

    torch._dynamo.reset()
    own = [same_layout(a) for a in args]
    state = torch.get_rng_state()
    expected = fn(*own)
    torch.set_rng_state(state)
    found = torch.compile(fn, backend=backend, dynamic=dynamic)(*args)
    assert_same((expected, own), (found, list(args)))
    backward(found)
    return seen


def backward(result: Any) -> None:
    """A step back from the first result that has a gradient, with weights that tell its elements apart."""
    results = result if isinstance(result, tuple | list) else (result,)
    for value in results:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            weights = torch.linspace(-1, 1, value.numel(), dtype=torch.float64).to(value.dtype)
            value.backward(weights.view(value.shape))
            return


def _compile(gm: Any, inputs: Sequence[Any], *, seen: Lowered, role: Any, env: Env) -> Callable[..., Any]:
    graph = capture(gm, role)
    program = lower(graph, env)
    verify(program, "lower")
    seen.graphs.append(graph)
    seen.programs.append(program)
    constants = graph.bound()

    def call(args: list[Any]) -> Any:
        mine, theirs = ([same_layout(a) for a in args] for _ in range(2))
        state = torch.get_rng_state()
        found = run_program(program, mine, constants)
        torch.set_rng_state(state)
        assert_same((list(gm(*theirs)), theirs), (list(found), mine))
        torch.set_rng_state(state)
        return gm(*args)

    call._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return call


def same_layout(value: Any) -> Any:
    """A copy with the same strides: `clone` would close the gaps."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_conj():
        return same_layout(value.conj()).conj()
    copy = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype).copy_(value.detach())
    return copy.requires_grad_(value.requires_grad)


def assert_same(expected: Any, found: Any) -> None:
    """Values, dtypes, sizes and strides; where a dimension has one element, its stride means nothing."""
    if isinstance(expected, tuple | list):
        assert len(expected) == len(found)
        for e, f in zip(expected, found, strict=True):
            assert_same(e, f)
    elif isinstance(expected, torch.Tensor):
        rtol, atol = TOLERANCE.get(expected.dtype.to_real(), (0, 0))
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
        assert _strides(found) == _strides(expected)
    else:
        assert expected == found


def _strides(tensor: torch.Tensor) -> list[int]:
    return [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1] if tensor.numel() else []


def grads(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Copies that ask for a gradient, of those that can have one."""
    return [t.clone().requires_grad_() if t.is_floating_point() or t.is_complex() else t for t in tensors]


def randn(*size: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(low: int, high: int, *size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(low, high, size, generator=torch.Generator().manual_seed(seed))


def loads(program: Program) -> list[str]:
    """The versions that kernels load, for tests on dependencies."""
    from minductor.ir.program.printer import print_program

    return re.findall(r"load (\S+)\[", print_program(program))
