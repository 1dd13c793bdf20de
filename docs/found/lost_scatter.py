"""A scatter_add beside an index_copy of the same rows is lost. Exits with 1 if it is."""

import torch


def fn(x, rows):
    copied = x.index_copy(0, torch.arange(2), rows[:2])
    return x.scatter_add(0, torch.zeros(2, 2, dtype=torch.int64), rows[:2]) + copied


if __name__ == "__main__":
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    rows = torch.tensor([[100.0, 200.0], [300.0, 400.0]], requires_grad=True)
    eager = fn(x, rows).detach()
    print("eager    ", eager.tolist())
    compiled = torch.compile(fn, fullgraph=True)(x, rows).detach()
    print("compiled ", compiled.tolist())
    raise SystemExit(not torch.equal(compiled, eager))
