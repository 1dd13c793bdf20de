"""Teaches minductor a device in one file: an array machine whose kernels are NumPy.

    python examples/write_a_device.py --rows 4 --columns 6

It needs NumPy.
A backend is a record of functions. This one prints a kernel as a Python function of flat arrays, in which each value is
an array over the kernel's axes. Fusion, memory planning, the store and autograd are minductor's. The program shows the
kernels of two functions and of their gradients, compares them with eager, and says what became a call.

minductor leaves to torch what this machine cannot say: LACKS names all that is not in SPELLINGS or in `text_of`. So a
backend begins small and grows. docs/backends.md is the guide; tests/example_backend is a device that torch knows, with
loops, 16-bit floats and tests.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import minductor
from minductor.backends import Artefact, Backend, Env, Target, register_backend, unregister_backend
from minductor.core.errors import BackendError
from minductor.ir.artefact.source import Unit
from minductor.ir.plan.plan import KernelLine, Plan
from minductor.ir.program.bundled import bundled_kernels
from minductor.ir.program.nodes import Constant, Index, Kernel, Load, Op, Parameter, Project, Reduce, Store
from minductor.ir.program.ops import POINTWISE
from minductor.ir.program.signature import signature

SPELLINGS = {
    **{"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}"},
    **{"lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}", "eq": "{0} == {1}"},
    **{name: f"np.{name}({{0}})" for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "square", "abs")},
    **{name: f"np.{name}({{0}}, {{1}})" for name in ("maximum", "minimum")},
    **{"where": "np.where({0}, {1}, {2})", "reciprocal": "1 / {0}", "cast": "{0}"},
}
TYPES = {"f32": "np.float32", "f64": "np.float64", "i32": "np.int32", "i64": "np.int64", "bool": "np.bool_"}
FORMS = "masked check assert scan atomic_add atomic_mul atomic_min atomic_max atomic_set atomic_and atomic_or"
LACKS = frozenset([*FORMS.split(), *(POINTWISE.keys() - SPELLINGS.keys())])


def kernels(plan: Plan, env: Env) -> tuple[Unit, ...]:
    """The text of the kernels of one graph, in one unit."""
    bodies = dict(plan.kernels)
    lines = [line for line in plan.lines if isinstance(line, KernelLine)]
    text = "\n".join(row for line in lines for row in function(bodies[line.id], line))
    return (Unit("kernels", f"{text}\n", tuple(line.symbol for line in lines), "py"),)


def function(kernel: Kernel, line: KernelLine) -> Iterator[str]:
    """A kernel as a function of a flat array for each storage, the sizes, and a number of threads."""
    if missing := sorted({dtype for _, dtype in line.signature} - TYPES.keys()):
        raise BackendError(f"the array machine has no {missing[0]}", hint=f"it has {', '.join(TYPES)}")
    given = signature(kernel)
    names = [*given.storages, *(size.name for size in given.sizes), "threads"]
    yield f"def {line.symbol}({', '.join(names)}):  # {', '.join(origin.node for origin in line.origins)}"
    for part in bundled_kernels(kernel):
        for place, axis in enumerate(part.axes):
            shape = ", ".join("-1" if place == other else "1" for other in range(len(part.axes)))
            yield f"    {axis.name} = np.arange({axis.extent}).reshape({shape})"
        # A kernel may write over what it reads: each load copies, and stores wait until all loads are done.
        for position, op in sorted(enumerate(part.body.ops), key=lambda row: isinstance(row[1].attrs, Store)):
            yield from (f"    {row}" for row in statement(position, op, part))
    yield "    return 0\n"


def statement(position: int, op: Op, kernel: Kernel) -> Iterator[str]:
    """One operation: a store, a reduction, or a value, which is an array over the kernel's axes."""
    match op.attrs:
        case Store(ref, at):
            yield f"put({ref.storage}, {at}, v{op.args[0]})"
        case Reduce(axes, combine):
            extents = "".join(f"{axis.extent}, " for axis in kernel.axes)
            places = [place for place, axis in enumerate(kernel.axes) if axis.name in axes]
            yield f"def join{position}({', '.join(f'x{n}' for n in range(2 * len(op.args)))}):"
            yield from (f"    v{n} = {text_of(inner)}" for n, inner in enumerate(combine.body.ops))
            yield f"    return {', '.join(f'v{result}' for result in combine.body.results)},"
            terms = "".join(f"v{arg}, " for arg in op.args)
            yield f"t{position} = folded(join{position}, ({terms}), ({extents}), {places})"
            yield f"v{position} = t{position}[0]"
        case Project(number):
            yield f"v{position} = t{op.args[0]}[{number}]"
        case _:
            yield f"v{position} = {text_of(op)}"


def text_of(op: Op) -> str:
    """The expression of an operation; its operands are named by their positions."""
    assert op.dtype is not None
    match op.attrs:
        case Load(ref, at):
            return f"{ref.storage}[{at}]"
        case Constant(value):
            return f"{TYPES[op.dtype.name]}(float('{value}'))" if isinstance(value, float) else repr(value)
        case Index(expr):
            return str(expr)
        case Parameter(number):
            return f"x{number}"
        case _:
            text = SPELLINGS[op.name].format(*(f"v{arg}" for arg in op.args))
            return f"np.asarray({text}, {TYPES[op.dtype.name]})"


def put(memory: Any, at: Any, value: Any) -> None:
    """Stores a value, which may vary along fewer axes than the place where it is stored."""
    at, value = np.broadcast_arrays(at, value)
    memory[at] = value


def folded(join: Callable[..., Any], values: Sequence[Any], extents: Sequence[int], axes: Sequence[int]) -> Any:
    """Joins the elements along axes pairwise, which rounds less than one after the other."""
    values = [np.broadcast_to(value, extents) for value in values]
    for axis in axes:
        while (n := values[0].shape[axis]) > 1:
            left, right, rest = zip(*(np.split(value, [n // 2, n // 2 * 2], axis) for value in values), strict=True)
            joined = join(*left, *right)
            values = [np.concatenate(pair, axis) for pair in zip(joined, rest, strict=True)]
    return values


def build(units: Sequence[Unit], folder: Path, env: Env) -> Mapping[str, bytes]:
    """What the store keeps of a graph: here there is nothing to compile."""
    return {unit.file: unit.text.encode() for unit in units}


def load(artefact: Artefact, env: Env) -> dict[str, Any]:
    """The functions of one graph, new or out of the store."""
    names: dict[str, Any] = {"np": np, "put": put, "folded": folded}
    exec(artefact.text("kernels.py"), names)
    return names


def launch(library: dict[str, Any], symbol: str) -> Callable[..., int]:
    """A kernel as a function of tensors and numbers; it returns 0, which means that nothing failed."""
    return lambda *args: library[symbol](*(flat(arg) if isinstance(arg, Tensor) else arg for arg in args))


def flat(tensor: Tensor) -> Any:
    """The memory of a tensor from its first element on, as the kernels index it."""
    count = tensor.untyped_storage().nbytes() // tensor.itemsize - tensor.storage_offset()
    return tensor.detach().as_strided((count,), (1,)).numpy()


TARGET = Target("array_1", kind="array", device="cpu", lacks=LACKS)  # it works on the CPU's memory
PARTS: dict[str, Any] = {"kernels": kernels, "build": build, "load": load, "launch": launch}
BACKEND = Backend(kind="array", api_version=2, targets=(TARGET,), probe=lambda: f"numpy {np.__version__}", **PARTS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles two functions for a device of NumPy.")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--columns", type=int, default=6)
    given = parser.parse_args()
    register_backend(BACKEND)
    torch.manual_seed(0)
    x = torch.randn(given.rows, given.columns, requires_grad=True)
    for fn in (lambda x: torch.softmax(2 * x, -1), lambda x: x.tanh().cumsum(0).square()):
        explained = minductor.explain(fn, x, options={"target": "array_1"})
        for compiled in filter(None, (road.compiled for road in explained.roads)):
            print(f"# {compiled.role}; calls of torch: {dict(compiled.report.extern_reasons)}")
            print(compiled.sources.get("kernels.py", ""))
        found = torch.compile(fn, backend="minductor", options={"target": "array_1"})(x)
        (slope,), (expected,) = (torch.autograd.grad(y.square().sum(), x) for y in (found, fn(x)))
        far, far_slope = (found - fn(x)).abs().max().item(), (slope - expected).abs().max().item()
        print(f"# largest difference from eager: {far:.1e}, of gradients {far_slope:.1e}\n")
        if not max(far, far_slope) < 1e-4:
            raise SystemExit("the kernels are wrong")
    unregister_backend("array")


if __name__ == "__main__":
    main()
