"""`python -m tests.e2e.aliases FIRST LAST [--grad] [--dynamic]`: random programs of views, writes and reads.

Takes a range of seeds. Gives the seeds whose program differs from eager's (values, layouts, what shares memory, what
became of the inputs) and from aot_eager's, each shrunk. Refuses nothing: a line that eager does not take is not drawn.
"""

from __future__ import annotations

import argparse
import itertools
import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from minductor.driver import Compiler

SHAPES = ((4, 5), (6,), (3, 4, 2), (4, 4), (1, 5), (7, 1), (2, 3), (12,), (0, 3), ())
DTYPES = ("float32",) * 8 + ("float64", "int64", "int32")  # 16-bit floats are wider between two writes than eager's
VIEWS = (
    "{t}[1:]",
    "{t}[..., 1:3]",
    "{t}[..., ::2]",
    "{t}[:-1]",
    "{t}[{i}]",
    "{t}[..., {i}]",
    "{t}.mT",
    "{t}.diagonal()",
    "{t}.view(-1)",
    "{t}.unsqueeze(0)",
    "{t}.squeeze()",
    "{t}.unfold(0, 2, 1)",
    "{t}.unfold(-1, 2, 2)",
    "{t}.expand(2, *{t}.shape)",
    "{t}.as_strided((2, 2), (2, 1))",
    "{t}.as_strided((2, 2), (1, 1), 1)",
    "{t}.chunk(2)[-1]",
    "{t}.flatten()",
    "{t}.detach()",
    "{t}.view_as({t})",
    "{t}.movedim(0, -1)",
)
WRITES = (
    "{t}.add_({c})",
    "{t}.mul_({u})",
    "{t}.add_({u})",
    "{t}.copy_({u})",
    "{t}.zero_()",
    "{t}.fill_({c})",
    "{t}[1:] = {u}",
    "{t}[..., 0] = {c}",
    "{t}[..., 1:] += {u}",
    "{t}[1:].copy_({t}[:-1].clone())",
    "{t}[..., 1:] = {t}[..., :-1] * 2",
    "{t}[{t} > 0] = {c}",
    "{t}.masked_fill_({t} > 1, {c})",
    "{t}[torch.tensor([0, -1])] = {c}",
    "{t}.index_add_(0, torch.tensor([0, 0]), {t}[:2].clone())",
    "{t}.index_fill_(0, torch.tensor([1]), {c})",
    "{t}.scatter_(0, torch.zeros_like({t}, dtype=torch.int64)[:1], {t}[:1] * 2)",
    "{t}.index_copy_(0, torch.tensor([1]), {t}[:1] * 3)",
    "{t}.neg_()",
    "{t}.clamp_(-1, 2)",
    "{t}.relu_()",
    "{t}.sub_({t})",
    "{t}.mul_({t})",
    "torch.add({u}, {c}, out={t})",
    "{t}.transpose_(0, 1)",
    "{t}.unsqueeze_(0)",
    "torch._foreach_add_([{t}, {u}], 1)",
)
VALUES = (
    "{t} * 2",
    "{t} + {u}",
    "{t} - {c}",
    "{t}.clone()",
    "{t}.sum(-1)",
    "{t}.sum()",
    "{t}.flip(0)",
    "torch.cat([{t}, {t}])",
    "{t}.contiguous()",
    "{t}.reshape(-1)",
    "torch.zeros_like({t})",
    "{t}.new_zeros(4, 5)",
    "torch.where({t} > 0, {t}, {u})",
    "{t}.cumsum(0)",
    "{t}.max(-1)[0]",
    "{t} @ {t}.mT",
    "{t}.slice_scatter({t}[:1] * 2)",
    "{t}.select_scatter({t}[1], 0, 0)",
    "{t}.float()",
    "{t}.to(torch.int64)",
    "{t}.real",
)
# an input that lies in another one's memory
SHARED = (
    "{t}",
    "{t}[1:]",
    "{t}.mT",
    "{t}.view(-1)",
    "{t}[:2]",
    "{t}[..., 1:]",
    "{t}.expand(2, *{t}.shape)",
    "{t}.detach()",
)
LAYOUTS = (
    "{t}",
    "{t}",
    "{t}",
    "{t}.mT.contiguous().mT",
    "torch.stack([{t}, {t}], -1)[..., 1]",
    "torch.cat([{t}, {t}])[{n}:]",
)


@dataclass(frozen=True)
class Case:
    """Lines that make the inputs, and those of the function; each line names what it makes."""

    inputs: tuple[str, ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def text(self) -> str:
        names = ", ".join(f"x{n}" for n in range(len(self.inputs)))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def f({names}):\n{body}    return ({''.join(o + ', ' for o in self.outputs)})\n"

    def make(self) -> list[torch.Tensor]:
        space = {"torch": torch, "rand": rand}
        for n, line in enumerate(self.inputs):
            space[f"x{n}"] = eval(line, space)
        return [space[f"x{n}"] for n in range(len(self.inputs))]


def rand(dtype: str, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(1, 1 + count).reshape(shape) * 0.37).sin().mul(4).to(getattr(torch, dtype))


def draw(seed: int, length: int = 9, *, grad: bool = False) -> Case:
    """Each line is tried in eager as it is drawn."""
    rng = random.Random(seed)
    inputs: list[str] = []
    for n in range(rng.choice((1, 1, 2, 2, 3))):
        if n and rng.random() < 0.5 and not grad:
            inputs.append(rng.choice(SHARED).format(t=f"x{rng.randrange(n)}"))
        else:
            shape = rng.choice(SHAPES[:-2]) if rng.random() < 0.9 else rng.choice(SHAPES)
            dtype = "float32" if grad else rng.choice(DTYPES)
            t = f"rand({', '.join([repr(dtype), *map(str, shape)])})"
            inputs.append(rng.choice(LAYOUTS).format(t=t, n=shape[0] if shape else 0))
    case = Case(tuple(inputs), (), ())
    try:
        case.make()
    except (RuntimeError, IndexError):
        return draw(seed + 1_000_003, length, grad=grad)
    names = [f"x{n}" for n in range(len(inputs))]
    lines: list[str] = []
    if grad:
        lines += [f"t{n} = x{n} * 1.5" for n in range(len(inputs))]
        names = [f"t{n}" for n in range(len(inputs))]
    for _ in range(length * 6):
        if len(lines) >= length:
            break
        kind = rng.choices((VIEWS, WRITES, VALUES), (3, 4, 2))[0]
        made = rng.choice(kind).format(
            t=rng.choice(names), u=rng.choice(names), c=rng.choice(("2", "1", "-3")), i=rng.choice(("0", "1", "-1"))
        )
        name = f"v{len(lines)}"
        line = made if kind is WRITES else f"{name} = {made}"
        if attempt(replace(case, lines=(*lines, line)), grad=grad):
            lines.append(line)
            if kind is not WRITES:
                names.append(name)
    outputs = rng.sample(names, min(len(names), rng.choice((1, 2, 3))))
    return replace(case, lines=tuple(lines), outputs=tuple(outputs))


def attempt(case: Case, *, grad: bool) -> bool:
    try:
        run(case, None, grad=grad)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return False
    return True


def run(case: Case, backend: Any, *, grad: bool = False, dynamic: bool = False) -> list[Any]:
    """All that a caller could see: results, inputs afterwards, gradients, and what shares memory."""
    space: dict[str, Any] = {"torch": torch}
    exec(case.text, space)
    fn = space["f"]
    if backend is not None:
        torch._dynamo.reset()
        fn = torch.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic or None)
    inputs = case.make()
    if grad:
        inputs = [t.clone().requires_grad_() for t in inputs]
    outs = list(fn(*inputs))
    tensors = [*outs, *inputs]
    shared = [
        (a, b)
        for (a, s), (b, t) in itertools.combinations(enumerate(tensors), 2)
        if s.numel() and t.numel() and s.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
    ]
    same = [(a, b) for (a, s), (b, t) in itertools.combinations(enumerate(tensors), 2) if s is t]
    if grad:
        total = sum((t.double().sin().sum() for t in outs if t.requires_grad), torch.zeros(()))
        if total.requires_grad:
            found = torch.autograd.grad(total, inputs, allow_unused=True)
            tensors += [torch.zeros(()) if g is None else g for g in found]
    seen = [(str(t.dtype), tuple(t.shape), layout(t), t.detach().clone()) for t in tensors]
    # writes of the caller's show what overlaps, and where
    for n, t in enumerate(tensors[: len(outs)]):
        if not t.requires_grad and t.numel() and is_plain(t):
            t.add_(n + 1)
    return [shared, same, seen, [t.detach().clone() for t in tensors]]


def layout(t: torch.Tensor) -> tuple[int, ...]:
    return tuple(s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1) if t.numel() else ()


def is_plain(t: torch.Tensor) -> bool:
    """Whether it may be written to: no element lies under another."""
    steps = sorted((s, n) for n, s in zip(t.shape, t.stride(), strict=True) if n > 1)
    reach = 0
    for s, n in steps:
        if s <= reach:
            return False
        reach += s * (n - 1)
    return True


def difference(a: list[Any], b: list[Any]) -> str:
    if a[0] != b[0] or a[1] != b[1]:
        return f"shares {a[0]} and is {a[1]}, not {b[0]} and {b[1]}"
    for n, (x, y) in enumerate(zip(a[2], b[2], strict=True)):
        if x[:3] != y[:3]:
            return f"tensor {n} is {x[:3]}, not {y[:3]}"
        if not close(x[3], y[3]):
            return f"tensor {n} has {x[3].tolist()}, not {y[3].tolist()}"
    late = [n for n, (x, y) in enumerate(zip(a[3], b[3], strict=True)) if not close(x, y)]
    return f"after the caller's writes tensors {late} differ" if late else ""


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    rtol = 1e-4 if a.dtype == torch.float32 else 1e-6
    return torch.allclose(a.double(), b.double(), rtol=rtol, atol=rtol, equal_nan=True)


def problem(case: Case, *, grad: bool = False, dynamic: bool = False) -> str:
    """What is wrong, unless aot_eager is wrong in the same way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = outcome(case, None, grad=grad, dynamic=False)
        if isinstance(expected, str):
            return ""
        found = outcome(case, Compiler(), grad=grad, dynamic=dynamic)
        wrong = found if isinstance(found, str) else difference(found, expected)
        if not wrong:
            return ""
        traced = outcome(case, "aot_eager", grad=grad, dynamic=dynamic)
        if isinstance(traced, str):
            return "" if isinstance(found, str) else wrong  # the tracer takes it no better
        return wrong if isinstance(found, str) else difference(found, traced)


def outcome(case: Case, backend: Any, *, grad: bool, dynamic: bool) -> list[Any] | str:
    try:
        return run(case, backend, grad=grad, dynamic=dynamic)
    except Exception as reason:
        return f"{type(reason).__name__}: {str(reason)[:600]}"


def smaller(case: Case) -> Iterator[Case]:
    for n in range(len(case.outputs)):
        yield replace(case, outputs=case.outputs[:n] + case.outputs[n + 1 :])
    for n in range(len(case.lines)):
        yield replace(case, lines=case.lines[:n] + case.lines[n + 1 :])


def shrunk(case: Case, **mode: bool) -> Case:
    """As long as something can be left out, and it is still wrong."""
    for _ in range(200):
        for other in smaller(case):
            try:
                if attempt(other, grad=mode["grad"]) and problem(other, **mode):
                    case = other
                    break
            except Exception:  # a line was needed by another
                continue
        else:
            return case
    return case


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.e2e.aliases", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--length", type=int, default=9)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    mode = {"grad": args.grad, "dynamic": args.dynamic}
    wrong = 0
    for seed in range(args.first, args.last):
        case = draw(seed, args.length, grad=args.grad)
        found = problem(case, **mode)
        if found:
            wrong += 1
            small = shrunk(case, **mode)
            print(f"--- seed {seed} {mode}: {problem(small, **mode)}\n# {small.inputs}\n{small.text}", flush=True)
    print(f"{wrong} of {args.last - args.first} are wrong", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
