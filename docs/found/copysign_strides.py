"""`copysign` lays its result out as the wrong operand. Exits with 1 if the strides are not eager's."""

import torch


def fn(x, y):
    return torch.copysign(x, y)


if __name__ == "__main__":
    x, y = torch.ones(2, 3, dtype=torch.bool), torch.ones(3, 2, dtype=torch.uint8).t()
    eager, compiled = fn(x, y).stride(), torch.compile(fn, fullgraph=True)(x, y).stride()
    print("eager    ", eager)
    print("compiled ", compiled)
    raise SystemExit(eager != compiled)
