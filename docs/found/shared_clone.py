"""`clone` of a flipped number is the number itself: what writes to one output changes the other. Exits with 1 if so."""

import torch


def fn(x):
    total = x.sum().flip(0)
    return total, total.clone()


def after_a_write(function):
    total, copy = function(torch.ones(3))
    total.zero_()
    return copy


if __name__ == "__main__":
    eager = after_a_write(fn)
    compiled = after_a_write(torch.compile(fn, fullgraph=True))
    print("eager    ", eager)
    print("compiled ", compiled)
    raise SystemExit(not torch.equal(compiled, eager))
