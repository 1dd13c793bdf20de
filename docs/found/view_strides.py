"""A view of a result has the strides of a copy of the view. Exits with 1 if they are not eager's."""

import torch


def fn(x):
    return torch.where(x > 0, x, 0).narrow(0, 1, 1)


if __name__ == "__main__":
    x = torch.arange(8.0).reshape(2, 2, 2).permute(1, 2, 0)
    eager, compiled = fn(x).stride(), torch.compile(fn, fullgraph=True)(x).stride()
    print("eager    ", eager)
    print("compiled ", compiled)
    raise SystemExit(eager != compiled)
