"""Random programs over tensors, as Python text, and what minductor makes of them.

Takes a seed. Gives a `Drawn` program whose lines eager can run, and `check`, which says where the compiled one differs
from eager: values, dtypes, strides, what the inputs hold afterwards, which tensors share memory, gradients.
Refuses nothing: a drawn line that eager rejects is drawn again.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from minductor.driver import Compiler

# {a} {b} {c}: tensors so far; {d}: a dimension; {n}: a small number; {s}: a shape that the number of elements allows
POINTWISE = (
    "{a} + {b}",
    "{a} - 2 * {b}",
    "{a} * {b}",
    "torch.sin({a})",
    "torch.tanh({a}) * 1.5",
    "torch.sigmoid({a})",
    "torch.relu({a} - 0.5)",
    "F.gelu({a})",
    "F.silu({a})",
    "{a}.abs()",
    "-{a}",
    "torch.exp(-{a}.abs())",
    "torch.log1p({a}.abs())",
    "torch.sqrt({a}.abs() + 1)",
    "torch.rsqrt({a}.abs() + 1)",
    "{a} / ({b}.abs() + 1)",
    "torch.maximum({a}, {b})",
    "torch.clamp({a}, -0.75, 0.5)",
    "torch.where({a} > 0, {b}, {c})",
    "torch.where({a} > {b}, {a}, 0)",
    "{a}.masked_fill({b} > 0.25, -1)",
    "torch.atan2({a}, {b}.abs() + 1)",
    "torch.lerp({a}, {b}, 0.25)",
    "torch.addcmul({a}, {b}, {c}, value=0.5)",
    "{a} ** 2",
    "{a}.square() + {b}.pow(3) * 0.1",
    "F.dropout({a}, 0.3, training=False)",
    "({a} > {b})",
    "({a} > 0) & ({b} <= 0)",
    "{a}.sign()",
    "{a}.reciprocal().clamp(-2, 2)",
    "torch.remainder({a}, 0.75)",
    "{a}.erf()",
)
CASTS = (
    "{a}.float()",
    "{a}.double()",
    "{a}.bfloat16().float()",
    "{a}.half()",
    "({a} * 4).int()",
    "({a} * 4).long()",
    "{a}.bool()",
    "({a}.abs() * 3).to(torch.uint8)",
    "{a}.to(torch.int32) // 2",
)
VIEWS = (
    "{a}.transpose({d}, {e})",
    "{a}.flatten()",
    "{a}.reshape({s})",
    "{a}.unsqueeze({d})",
    "{a}.squeeze()",
    "{a}.squeeze({d})",
    "{a}.narrow({d}, {n}, {m})",
    "{a}.select({d}, {n})",
    "{a}[..., {n}:]",
    "{a}[::2]",
    "{a}[..., 1::3]",
    "{a}.flip({d})",
    "{a}.roll({n}, {d})",
    "{a}.expand(2, *{a}.shape)",
    "{a}.movedim({d}, {e})",
    "{a}.contiguous()",
    "{a}.permute(*reversed(range({a}.dim())))",
    "{a}.unfold({d}, 2, {m})",
    "{a}.diagonal(0, {d}, {e})",
    "{a}.repeat(2, *[1] * ({a}.dim() - 1))",
    "{a}.clone()",
    "{a}.detach()",
    "{a}.split({m}, {d})[-1]",
    "{a}.chunk(2, {d})[0]",
    "{a}.unbind({d})[0]",
    "{a}.as_strided(({a}.numel() // 2,), (2,)) if {a}.is_contiguous() else {a}",
)
REDUCTIONS = (
    "{a}.sum({d})",
    "{a}.sum()",
    "{a}.sum({d}, keepdim=True)",
    "{a}.mean({d}, keepdim=True)",
    "{a}.mean()",
    "{a}.amax({d})",
    "{a}.amin({d}, keepdim=True)",
    "{a}.sum(({d}, {e}))",
    "torch.softmax({a}, {d})",
    "torch.log_softmax({a}, {d})",
    "F.layer_norm({a}, {a}.shape[-1:])",
    "{a}.var({d}, unbiased=False)",
    "{a}.std({d}, unbiased=False, keepdim=True)",
    "{a}.argmax({d})",
    "{a}.argmin({d}, keepdim=True)",
    "{a}.max({d})[0]",
    "{a}.min({d})[1]",
    "({a} > 0).any({d})",
    "({a} > 0).all()",
    "{a}.prod({d})",
    "{a}.cumsum({d})",
    "torch.logsumexp({a}, {d})",
    "{a}.norm()",
    "F.normalize({a}, dim={d})",
)
JOINS = (
    "torch.cat([{a}, {b}], {d})",
    "torch.cat([{a}, {a} * 2, {a}], {d})",
    "torch.stack([{a}, {a} + 1], {d})",
    "torch.stack([{a}, {b}], -1)",
    "F.pad({a}, (1, {m}), value=0.5)",
    "{a} @ {b}",
    "{a} @ {a}.transpose(-1, -2)",
    "torch.addmm({c}, {a}, {b})",
    "torch.einsum('...i,...i->...', {a}, {b})",
    "torch.gather({a}, {d}, ({a}.abs() * 2).long().clamp(0, {a}.shape[{d}] - 1))",
    "{a}[({b}.abs() * 2).long().flatten()[:3].clamp(0, {a}.shape[0] - 1)]",
    "{a}[:, torch.tensor([0, -1])]",
    "torch.index_select({a}, {d}, torch.arange({a}.shape[{d}] - 1, -1, -1))",
    "torch.zeros_like({a}).scatter_add({d}, ({b}.abs() * 2).long().clamp(0, {a}.shape[{d}] - 1), {b})",
    "F.one_hot(({a}.abs() * 2).long().clamp(0, 4), 5)",
    "{a}.index_add(0, torch.tensor([0]), {a}[:1])",
    "{a}.tril()",
    "torch.arange({a}.shape[{d}]) + {m}",
    "{a} + torch.linspace(0, 1, {a}.shape[-1])",
    "F.embedding(({a}.abs() * 2).long().clamp(0, {b}.shape[0] - 1), {b})",
    "torch.ones_like({a}).cumsum({d}) * {a}",
    "{a}.new_full({a}.shape, 0.5) + {b}",
)
WRITES = (
    "{a}.add_({b})",
    "{a}.mul_(0.5)",
    "{a}.copy_({b})",
    "{a}[..., {n}:].add_(1)",
    "{a}[::2].mul_(-1)",
    "{a}.select({d}, {n}).copy_({b})",
    "{a}.transpose({d}, {e}).sub_(0.25)",
    "{a}.fill_({m})",
    "{a}.narrow({d}, {n}, {m}).zero_()",
    "{a}.masked_fill_({b} > 0, 0.5)",
    "{a}.index_copy_(0, torch.tensor([0]), {a}[-1:] * 2)",
    "{a}.flatten().tanh_()",
    "{a}.clamp_(min=-0.5)",
    "{a}[0] = {b}",
    "{a}[{a} > 0.5] = 0.25",
    "{a}.scatter_({d}, ({b}.abs() * 2).long().clamp(0, {a}.shape[{d}] - 1), 0.125)",
)
FAMILIES: Mapping[str, tuple[tuple[str, ...], int]] = MappingProxyType(
    {
        "pointwise": (POINTWISE, 10),
        "casts": (CASTS, 2),
        "views": (VIEWS, 6),
        "reductions": (REDUCTIONS, 5),
        "joins": (JOINS, 4),
        "writes": (WRITES, 3),
    }
)
EXTENTS = (0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 65)
LARGEST = 20_000
# sizes at which loops are cut in blocks and run on several threads
LARGE_EXTENTS = (1, 2, 3, 16, 64, 100, 129, 257, 1024, 1031, 4100, 40_000)
LARGEST_OF_ALL = 2_000_000


@dataclass(frozen=True)
class Drawn:
    """A program and its inputs, which `inputs()` makes anew for each run."""

    seed: int
    shapes: tuple[str, ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    is_differentiable: bool
    is_scalable: bool = False  # its lines name no sizes

    @property
    def text(self) -> str:
        names = ", ".join(f"x{n}" for n in range(len(self.shapes)))
        return "\n    ".join([f"def fn({names}):", *self.lines, f"return {', '.join(self.outputs)},"])

    def fn(self) -> Callable[..., tuple[Any, ...]]:
        space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.text, f"<program {self.seed}>", "exec"), space)
        return space["fn"]

    def scaled(self, by: Callable[[int], int]) -> Drawn:
        """The same program on inputs of other sizes; equal sizes stay equal, and small ones what they are."""
        shapes = [re.sub(r"\d+", lambda m: m[0] if int(m[0]) < 3 else str(by(int(m[0]))), s) for s in self.shapes]
        return replace(self, shapes=tuple(shapes))

    def inputs(self, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
        """Values depend on the seed only; `dtype` widens the floating ones."""
        made = inputs_of(self.shapes, self.seed)
        if dtype is not None:
            made = [t.to(dtype) if t.is_floating_point() else t for t in made]
        if self.is_differentiable:
            made = [t.detach().requires_grad_(t.is_floating_point()) for t in made]
        return made


def inputs_of(shapes: Sequence[str], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    def whole(*shape: int) -> torch.Tensor:
        return torch.randint(-3, 4, shape, generator=generator)

    return [eval(shape, {"rand": rand, "whole": whole, "torch": torch}) for shape in shapes]


def draw(
    seed: int, length: int, *, is_differentiable: bool = False, is_scalable: bool = False, is_large: bool = False
) -> Drawn:
    """Lines are drawn one at a time and kept if eager runs them."""
    rng = random.Random(seed)
    extents = _extents(rng, is_large=is_large)
    shapes = tuple(_input(rng, extents, is_differentiable=is_differentiable) for _ in range(rng.randint(1, 4)))
    largest = LARGEST_OF_ALL if is_large else LARGEST
    kinds = {k: v for k, v in FAMILIES.items() if not is_differentiable or k != "casts"}
    if is_scalable:
        kinds = {k: (tuple(t for t in v if "{s}" not in t and "{n}" not in t), w) for k, (v, w) in kinds.items()}
    lines: list[str] = []
    space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    tensors = Drawn(seed, shapes, (), (), is_differentiable).inputs()
    space |= {f"x{n}": t for n, t in enumerate(tensors)}
    names = [f"x{n}" for n in range(len(shapes))]
    for _ in range(length * 12):
        if len(lines) >= length:
            break
        line = _line(rng, kinds, names, space, f"t{len(lines)}")
        if line is not None and _runs(line, space, f"t{len(lines)}", largest):
            lines.append(line)
            if line.startswith(f"t{len(lines) - 1} ="):
                names.append(f"t{len(lines) - 1}")
    used = " ".join(line.partition("=")[2] or line for line in lines).replace(".", " ")
    loose = [name for name in names if name not in re.findall(r"\w+", used)]
    outputs = tuple(dict.fromkeys([*loose[-6:], *rng.sample(names, min(len(names), rng.randint(1, 3)))]))
    return Drawn(seed, shapes, tuple(lines), outputs, is_differentiable, is_scalable)


def _extents(rng: random.Random, *, is_large: bool) -> list[int]:
    if not is_large:
        return [rng.choice(EXTENTS[1:] if rng.random() < 0.9 else EXTENTS) for _ in range(3)]
    while True:
        found = rng.choices(LARGE_EXTENTS, k=3)
        if 50_000 < found[0] * found[1] * found[2] < 600_000:
            return found


def _input(rng: random.Random, extents: list[int], *, is_differentiable: bool) -> str:
    a, b, c = rng.sample(extents, 3)
    kinds = [
        f"rand({a})",
        f"rand({a}, {b})",
        f"rand({a}, {b})",
        f"rand({a}, {b}, {c})",
        f"rand({b}, {a}).t()",
        f"rand({a}, {b} * 2 + 1)[:, 1::2]",
        f"rand({c}, {a}, {b}).permute(1, 2, 0)",
        f"rand({a}, 1).expand({a}, {b})",
        f"rand({a} + 2, {b})[2:]",
        "rand()",
        f"rand({a}, {b}).double()",
    ]
    if not is_differentiable:
        kinds += [f"whole({a}, {b})", f"whole({a}, {b}).int()", f"rand({a}, {b}) > 0", f"rand({a}, {b}).bfloat16()"]
    return rng.choice(kinds)


def _line(
    rng: random.Random, kinds: Mapping[str, Any], names: Sequence[str], space: Mapping[str, Any], new: str
) -> str | None:
    family = rng.choices(list(kinds), [weight for _, weight in kinds.values()])[0]
    template = rng.choice(kinds[family][0])
    recent = names[-4:] if rng.random() < 0.6 else names
    weights = {name: 1 + min(space[name].numel(), 30) for name in names}
    a = rng.choices(recent, [weights[name] for name in recent])[0]
    b, c = rng.choices(names, list(weights.values()), k=2)
    value = space[a]
    rank, total = max(value.dim(), 1), value.numel()
    divisors = [n for n in (1, 2, 3, 4, 8) if total % n == 0]
    rows = rng.choice(divisors)
    shape = (rows, total // rows) if rng.random() < 0.7 else (total // rows, 1, rows)
    fill = {"a": a, "b": b, "c": c, "d": rng.randrange(-1, rank), "e": rng.randrange(rank), "s": shape}
    text = template
    for key, given in {**fill, "n": rng.randint(0, 2), "m": rng.randint(1, 3)}.items():
        text = text.replace("{" + key + "}", str(given))
    return text if family == "writes" else f"{new} = {text}"


def _runs(line: str, space: dict[str, Any], new: str, largest: int) -> bool:
    """Whether eager takes it, on values that stay small and finite; otherwise nothing has changed."""
    storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in space.values() if isinstance(t, torch.Tensor)}
    before = [(storage, storage.clone()) for storage in storages.values()]
    trial = dict(space)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(line, trial)
    except Exception:
        _restore(before)
        return False
    result = trial.get(new)
    tensors = [t for t in trial.values() if isinstance(t, torch.Tensor)]
    small = all(t.numel() <= largest and bool((t.detach().double().abs() < 50).all()) for t in tensors)
    if not small or (result is not None and not isinstance(result, torch.Tensor)):
        _restore(before)
        return False
    space.update(trial)
    return True


def _restore(before: Sequence[tuple[torch.UntypedStorage, torch.UntypedStorage]]) -> None:
    for storage, value in before:
        storage.copy_(value)


# --- the comparison -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a run left behind, by name."""

    tensors: Mapping[str, torch.Tensor | None]
    sharing: frozenset[tuple[str, str]]


def run(fn: Callable[..., Any], inputs: list[torch.Tensor], *, is_differentiable: bool) -> Outcome:
    with torch.set_grad_enabled(is_differentiable), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outs = fn(*inputs)
    named: dict[str, torch.Tensor | None] = {f"out{n}": t for n, t in enumerate(outs)}
    named |= {f"x{n}": t for n, t in enumerate(inputs)}
    sharing = frozenset(
        (a, b)
        for (a, s), (b, t) in combinations(named.items(), 2)
        if s is not None and t is not None and s.numel() and s.untyped_storage()._cdata == t.untyped_storage()._cdata
    )
    found = {name: t.detach().clone() if t is not None else None for name, t in named.items()}
    found |= {name: t.detach() if t is not None else None for name, t in named.items() if name.startswith("out")}
    if is_differentiable:
        roots = [t for t in outs if t.requires_grad]
        leaves = [t for t in inputs if t.requires_grad]
        if roots and leaves:
            weights = [torch.arange(t.numel()).reshape(t.shape).remainder(5).sub(1.5).to(t.dtype) for t in roots]
            grads = torch.autograd.grad(roots, leaves, weights, allow_unused=True)
            found |= {f"grad{n}": g for n, g in enumerate(grads)}
    return Outcome(found, sharing)


def check(drawn: Drawn, *, dynamic: bool = False, backend: Any = None) -> str | None:
    """None if compiled is as good as eager, or the program is too badly conditioned to tell; else what differs."""
    torch._dynamo.reset()
    compiled = torch.compile(drawn.fn(), backend=backend or Compiler(), fullgraph=True, dynamic=dynamic)
    others = [drawn.scaled(lambda n: 2 * n), drawn.scaled(lambda n: n + 3)] if drawn.is_scalable else []
    lines = (_checked(each, compiled) for each in (drawn, *others))
    return next((line for line in lines if line), None)


def _checked(drawn: Drawn, compiled: Callable[..., Any]) -> str | None:
    fn = drawn.fn()
    grad = drawn.is_differentiable
    try:
        eager = run(fn, drawn.inputs(), is_differentiable=grad)
        truth = run(fn, drawn.inputs(torch.float64), is_differentiable=grad)
    except Exception:
        return None  # eager's own refusal, such as backward through a value changed in place
    got = run(compiled, drawn.inputs(), is_differentiable=grad)
    if got.sharing != eager.sharing:
        return f"sharing: {sorted(got.sharing)}, eager {sorted(eager.sharing)}"
    problems = [
        f"{name}: {line}"
        for name, theirs in eager.tensors.items()
        if (line := _differs(got.tensors[name], theirs, truth.tensors.get(name)))
    ]
    if any("stride" in line for line in problems):
        # an operator's fake implementation may lay its result out differently: then so does what is compiled
        known = [f"out{n}: stride {stride}" for n, stride in enumerate(traced_strides(fn, drawn.inputs()))]
        problems = [line for line in problems if not line.startswith(tuple(known))]
    return "; ".join(problems) or None


def traced_strides(fn: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[tuple[int, ...] | None]:
    """The strides of the results as the tracer sees them."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        outs = pytree.tree_leaves(fn(*[mode.from_tensor(t) for t in inputs]))
    return [t.stride() if isinstance(t, torch.Tensor) else None for t in outs]


def _differs(ours: torch.Tensor | None, theirs: torch.Tensor | None, truth: torch.Tensor | None) -> str | None:
    if ours is None or theirs is None:
        return None if ours is theirs else f"{ours is None}, eager {theirs is None}"
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return f"{ours.dtype}{list(ours.shape)}, eager {theirs.dtype}{list(theirs.shape)}"
    if ours.numel() and [s for n, s in zip(ours.shape, ours.stride(), strict=True) if n > 1] != [
        s for n, s in zip(theirs.shape, theirs.stride(), strict=True) if n > 1
    ]:
        return f"stride {ours.stride()}, eager {theirs.stride()}"
    mine, plain = ours.detach().double(), theirs.detach().double()
    exact = truth.detach().double() if truth is not None and truth.shape == theirs.shape else plain
    loose = 2e-2 if theirs.dtype in (torch.bfloat16, torch.float16) else 2e-4
    if not torch.allclose(plain, exact, loose / 4, loose / 4, equal_nan=True):
        return None  # eager is no judge here
    if torch.allclose(mine, plain, loose, loose, equal_nan=True):
        return None
    worst = (mine - plain).abs().nan_to_num(torch.inf).flatten().argmax() if mine.numel() else 0
    return f"at {int(worst)}: {mine.flatten()[worst]:.7g}, eager {plain.flatten()[worst]:.7g}"


def shrunk(drawn: Drawn, is_bad: Callable[[Drawn], bool]) -> Drawn:
    """Fewer lines and outputs, as long as it stays bad; a line that others need stays."""
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(drawn):
            if is_bad(smaller):
                drawn, progress = smaller, True
                break
    return drawn


def _smaller(drawn: Drawn) -> list[Drawn]:
    found = []
    for n in range(len(drawn.outputs)):
        if len(drawn.outputs) > 1:
            found.append(replace(drawn, outputs=drawn.outputs[:n] + drawn.outputs[n + 1 :]))
    for n in reversed(range(len(drawn.lines))):
        found.append(replace(drawn, lines=drawn.lines[:n] + drawn.lines[n + 1 :]))
    return found
