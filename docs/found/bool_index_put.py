"""`index_put(accumulate=True)` into a bool of one element does not compile. Exits with 1 if it does not."""

import torch


def fn(x):
    mask = x.unsqueeze(0) <= 0
    return mask.index_put((torch.tensor([0, 0]),), mask[-1:], accumulate=True)


if __name__ == "__main__":
    x = torch.tensor(1.0)
    eager = fn(x)
    print("eager    ", eager)
    try:
        compiled = torch.compile(fn, fullgraph=True)(x)
    except RuntimeError as error:
        raise SystemExit(f"compiled  {error}") from None
    print("compiled ", compiled)
    raise SystemExit(not torch.equal(compiled, eager))
