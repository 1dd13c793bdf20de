"""The cumulative sum of a constant overlaps itself, and takes no write. Exits with 1 if it is so."""

import torch


def fn(x):
    return x.new_zeros(x.shape).cumsum(-1)


if __name__ == "__main__":
    x = torch.ones(2, 3, 1)
    eager, compiled = fn(x), torch.compile(fn, fullgraph=True)(x)
    print("eager    ", eager.stride())
    print("compiled ", compiled.stride())
    for result in (eager, compiled):
        try:
            result[0] += 1
        except RuntimeError as error:
            raise SystemExit(f"a write   {error}") from None
    raise SystemExit(not torch.equal(compiled, eager))
