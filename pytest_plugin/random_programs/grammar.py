"""The lines of Python that random programs are made of, by family.

Takes nothing. Gives the families as a table. Refuses nothing: a line that does not fit the tensors that it is drawn for
is drawn again (strategies.py).

In a line, {a} {b} {c} stand for earlier tensors, {d} {e} for dimensions of {a}, {n} for a position along {d}, {m} for a
small number, {s} for a shape with as many elements as {a} has, {j} for indices along {d} that are made from {b}.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Lines of one kind.

    Attributes:
        name: The name of the family.
        weight: How often its lines are drawn, relative to others.
        takes: The kinds of dtypes that {a} may have: f for floating, i for integer, b for bool.
        texts: The lines.
        rounds: Whether their results are rounded.
        writes: Whether a line is a statement that changes {a}, and not an expression.
    """

    name: str
    weight: int
    takes: str
    texts: tuple[str, ...]
    rounds: bool = False
    writes: bool = False

    def __repr__(self) -> str:
        return self.name


# A line at the margin begins a family: its name, weight and kinds of dtypes, then "rounds" and "writes" if they are
# true. Its texts follow. The first are the simplest, since hypothesis shrinks towards them.
GRAMMAR = """\
arithmetic 6 fi rounds
    {a} + {b}
    {a} * {b}
    {a} - 2 * {b}
    {a} * 0.5 + 1
    {a}.square()
    {a} / ({b}.abs() + 1)
    torch.addcmul({a}, {b}, {c}, value=2)
    torch.rsub({a}, {b}, alpha=2)
    {a} ** 2
    torch.true_divide({a}, 3)
    torch.lerp({a}, {b}, 0.25)
functions 6 f rounds
    torch.sin({a})
    torch.tanh({a}) * 1.5
    torch.sigmoid({a})
    F.gelu({a})
    F.silu({a})
    torch.exp(-{a}.abs())
    torch.log1p({a}.abs())
    torch.sqrt({a}.abs() + 1)
    torch.rsqrt({a}.abs() + 1)
    torch.atan2({a}, {b}.abs() + 1)
    {a}.erf()
    torch.hypot({a}, {b} + 2)
    F.softplus({a})
    torch.cos({a})
    {a}.pow(3) * 0.1
    F.elu({a})
    torch.logaddexp({a}, {b})
    F.hardswish({a})
    torch.expm1({a}.clamp(max=2))
selection 5 fib
    torch.where({a} > 0, {b}, {c})
    torch.maximum({a}, {b})
    torch.minimum({a}, {b})
    {a}.masked_fill({b} > 0.25, 1)
    torch.where({a} > {b}, {a}, 0)
    torch.clamp({a}, -1, 2)
    {a}.abs()
    -{a}
    {a}.relu()
    {a}.clone()
    {a}.sign()
    F.leaky_relu({a}, 0.5)
    torch.fmax({a}, {b})
    {a}.nan_to_num()
    F.dropout({a}, 0.5, training=False)
    torch.copysign({a}, {b}.nan_to_num())
comparison 3 fib
    {a} > {b}
    {a} <= 0
    ({a} > 0) & ({b} <= 0)
    {a} == {b}
    torch.logical_xor({a}, {b})
    ~({a} != 0)
    torch.isclose({a}, {a} + 1)
    {a}.isnan()
steps 1 f
    {a}.floor()
    {a}.round()
    {a}.trunc()
    torch.remainder({a}, 0.75)
    {a}.frac()
integers 3 ib
    {a} & 3
    {a} | {b}.long()
    {a} ^ 1
    ~{a}
    {a}.int() << 1
    {a}.long() >> 1
    {a} // 3
    {a} % 3
    torch.div({a}, 2, rounding_mode='trunc')
    torch.fmod({a}, 3)
    {a}.bitwise_and({b}.int())
    {a} * 100
casts 3 fib
    {a}.float()
    {a}.double()
    {a}.bfloat16()
    {a}.half()
    {a}.int()
    ({a} * 4).long()
    {a}.bool()
    {a}.abs().to(torch.uint8)
    {a}.to({b}.dtype)
    {a}.type_as({b})
views 7 fib
    {a}.t()
    {a}.transpose({d}, {e})
    {a}.reshape({s})
    {a}[..., 1:]
    {a}[::2]
    {a}.unsqueeze({d})
    {a}.flatten()
    {a}.squeeze()
    {a}.squeeze({d})
    {a}.select({d}, {n})
    {a}.narrow({d}, {n}, 1)
    {a}[..., 1::3]
    {a}.view({s})
    {a}.flip({d})
    {a}.roll(1, {d})
    {a}.expand(2, *{a}.shape)
    {a}.movedim({d}, {e})
    {a}.contiguous()
    {a}.unfold({d}, 2, {m})
    {a}.diagonal(0, {d}, {e})
    {a}.repeat(2, *[1] * ({a}.dim() - 1))
    {a}.detach()
    {a}.split({m}, {d})[-1]
    {a}.chunk(2, {d})[0]
    {a}.unbind({d})[-1]
    {a}.as_strided(({a}.numel() // 2,), (2,), 0)
    {a}[None, ..., -1]
    {a}.view_as({a})
    torch.broadcast_to({a}, ({m}, *{a}.shape))
    {a}.reshape(-1, 1)
    {a}.new_zeros({a}.shape)
    {a}.T if {a}.dim() == 2 else {a}
    {a}.unflatten({d}, (-1, 1))
reductions 5 fi rounds
    {a}.sum({d})
    {a}.sum()
    {a}.sum({d}, keepdim=True)
    {a}.mean({d}, keepdim=True, dtype=torch.float32)
    {a}.sum(({d}, {e}), dtype=torch.float64)
    {a}.cumsum({d})
    {a}.prod({d})
    {a}.sum([])
    torch.linalg.vector_norm({a}, dim={d})
    torch.cumprod({a}, {d})
statistics 3 f rounds
    {a}.mean()
    torch.softmax({a}, {d})
    torch.log_softmax({a}, {d})
    F.layer_norm({a}, {a}.shape[-1:])
    {a}.var({d}, unbiased=False)
    {a}.std({d}, keepdim=True)
    torch.logsumexp({a}, {d})
    {a}.norm()
    F.normalize({a}, dim={d})
    torch.var_mean({a}, {d})[1]
    torch.logcumsumexp({a}, {d})
    {a}.mean({d}) - {a}.select({d}, 0)
orders 3 fi
    {a}.amax({d})
    {a}.amin({d}, keepdim=True)
    {a}.argmax({d})
    {a}.argmin({d}, keepdim=True)
    {a}.max({d})[0]
    {a}.min({d})[1]
    ({a} > 0).any({d})
    ({a} > 0).all()
    torch.count_nonzero({a}, {d})
    torch.cummax({a}, {d})[0]
    torch.sort({a}, {d}, stable=True)[0]
    torch.argsort({a}, {d}, stable=True)
    torch.topk({a}, 1, {d})[0]
    {a}.aminmax(dim={d})[0]
    torch.cummin({a}, {d})[1]
products 3 f rounds
    {a} @ {b}
    {a} @ {a}.transpose(-1, -2)
    torch.einsum('...i,...i->...', {a}, {b})
    torch.addmm({c}, {a}, {b})
    F.linear({a}, {b})
    torch.outer({a}.flatten()[:5], {b}.flatten()[:5])
    F.linear({a}, {b}, {c})
indexing 4 fib
    torch.index_select({a}, {d}, {j}.flatten())
    torch.take_along_dim({a}, {j}, {d})
    torch.gather({a}, {d}, {j})
    {a}[torch.tensor([0, -1])]
    {a}[..., torch.tensor([[0], [-1]])]
    torch.index_select({a}, {d}, torch.arange({a}.shape[{d}] - 1, -1, -1))
    F.embedding(({b}.float().abs() * 2).long() % {a}.shape[0], {a})
    {a}.take(({b}.float().abs() * 2).long() % {a}.numel())
    {a}[:, torch.arange({a}.shape[1]) % 2]
    torch.searchsorted({a}.flatten().sort()[0], {b})
    torch.bucketize({b}, torch.tensor([-1.0, 0.0, 1.0]))
scatter 4 fi rounds
    torch.zeros_like({a}).scatter_add({d}, {j}, {a})
    {a}.scatter({d}, {j}, 2)
    {a}.index_add({d}, torch.tensor([0]), {a}.narrow({d}, 0, 1))
    {a}.index_copy({d}, torch.tensor([0]), {a}.narrow({d}, -1, 1))
    {a}.index_fill({d}, torch.tensor([-1]), 1)
    {a}.scatter_reduce({d}, {j}, {a}, 'amax')
    {a}.scatter_reduce({d}, {j}, {a}, 'sum', include_self=False)
    {a}.scatter_reduce({d}, {j}, {a}, 'amin')
    {a}.index_put((torch.tensor([0, 0]),), {a}[-1:], accumulate=True)
    {a}.index_put(({a} > 1,), torch.tensor(1).to({a}.dtype))
    {a}.masked_scatter({b} > 0, {a}.flip(0))
    torch.select_scatter({a}, {a}.select({d}, 0), {d}, -1)
    torch.slice_scatter({a}, {a}[:1] * 2, 0, 0, 1)
    torch.diagonal_scatter({a}, {a}.diagonal(0, 0, 1) + 1, 0, 0, 1)
joins 4 fib
    torch.cat([{a}, {b}], {d})
    torch.stack([{a}, {a}], {d})
    torch.cat([{a}, {a}.flip({d}), {a}], {d})
    torch.stack([{a}, {b}], -1)
    F.pad({a}, (1, {m}), value=1)
    {a}.tril()
    {a}.triu(1)
    torch.arange({a}.shape[{d}]) + {m}
    F.one_hot(({a}.float().abs() * 2).long().clamp(0, 4), 5)
    {a} + torch.linspace(0, 1, {a}.shape[-1])
    {a}.repeat_interleave(2, {d})
    F.pad({a}.float()[None], (1, 1), mode='reflect')
    torch.full_like({a}, 1)
    F.pad({a}, (-1, {m}))
    torch.nn.functional.unfold({a}.float()[None, None], (2, 1))
    F.max_pool1d({a}.float(), 2)
    F.avg_pool1d({a}.float(), 2, stride=1)
    F.interpolate({a}.float()[None], scale_factor=2.0)
    torch.tensor_split({a}, 2, {d})[0]
    torch.meshgrid({a}.flatten()[:3], {b}.flatten()[:2], indexing='ij')[0]
writes 4 fib rounds writes
    {a}.mul_(2)
    {a}.add_({b})
    {a}.copy_({b})
    {a}.fill_(1)
    {a}[..., 1:].add_(1)
    {a}[::2].mul_(-1)
    {a}.select({d}, {n}).copy_({b})
    {a}.transpose({d}, {e}).sub_(1)
    {a}.narrow({d}, {n}, 1).zero_()
    {a}.masked_fill_({b} > 0, 1)
    {a}.index_copy_(0, torch.tensor([0]), {a}[-1:] * 2)
    {a}.flatten().abs_()
    {a}.clamp_(min=-1)
    {a}[0] = {b}
    {a}[{a} > 1] = 0
    {a}.scatter_({d}, {j}, 1)
    {a}.scatter_add_({d}, {j}, {a}.clone())
    {a}.index_put_((torch.tensor([0, -1]),), {b}, accumulate=True)
    {a}.t()[0].neg_()
    {a}.diagonal().fill_(0)
    torch._foreach_add_([{a}, {a}.clone()], 1)
    {a}.copy_({a}.flip(0))
    {a}[1:, ...].copy_({b})
    {a}.view(-1)[1:].add_(1)
    {a}.tanh_()
    {a}.index_add_({d}, torch.tensor([0]), {a}.narrow({d}, 0, 1).clone())
    {a}.unsqueeze(0).mul_({b})
    {a}.exp_()
"""


def parse_grammar(grammar: str) -> tuple[Family, ...]:
    """Returns the families of a grammar that is written like GRAMMAR.

    >>> parse_grammar("steps 1 f rounds\\n    {a}.floor()\\n    {a}.trunc()\\n")[0].texts
    ('{a}.floor()', '{a}.trunc()')
    """
    families: list[Family] = []
    for block in re.split(r"\n(?=\S)", grammar.rstrip("\n")):
        head, *texts = block.split("\n    ")
        name, weight, takes, *facts = head.split()
        families.append(Family(name, int(weight), takes, tuple(texts), "rounds" in facts, "writes" in facts))
    return tuple(families)


FAMILIES = parse_grammar(GRAMMAR)
