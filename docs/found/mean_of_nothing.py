"""The mean that `var_mean` gives of no elements is 0 and not NaN. Exits with 1 if it is."""

import torch


def fn(x):
    return torch.var_mean(x, 0)[1]


if __name__ == "__main__":
    x = torch.empty(0)
    eager, compiled = fn(x), torch.compile(fn, fullgraph=True)(x)
    print("eager    ", eager)
    print("compiled ", compiled)
    raise SystemExit(bool(compiled.isnan() != eager.isnan()))
