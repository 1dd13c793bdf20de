"""A gradient is lost where an output is a view of what another output is detached from. Exits with 1 if it is."""

import torch


def fn(x):
    doubled = x * 2
    return doubled.detach(), doubled[::2]


def gradient(function):
    x = torch.ones(4, 3, requires_grad=True)
    function(x)[1].sum().backward()
    return x.grad


if __name__ == "__main__":
    eager = gradient(fn)
    print("eager    ", eager.tolist())
    try:
        compiled = gradient(torch.compile(fn, fullgraph=True))
    except RuntimeError as error:
        raise SystemExit(f"compiled  {error}") from None
    print("compiled ", compiled)
    raise SystemExit(compiled is None or not torch.equal(compiled, eager))
