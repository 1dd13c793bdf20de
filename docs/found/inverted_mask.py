"""`where` on bytes takes the other side. Exits with 1 if it does.

The options are those of a machine whose vectors have 256 bits; the fault needs g++ 12 and a machine with AVX-512.
"""

import torch


def fn(x):
    return torch.where(x > 1, 1, x)


if __name__ == "__main__":
    x = (torch.arange(32) % 5).to(torch.uint8)
    eager, compiled = fn(x), torch.compile(fn, fullgraph=True, options={"cpp.simdlen": 256})(x)
    print("eager    ", eager[:5].tolist())
    print("compiled ", compiled[:5].tolist())
    raise SystemExit(not torch.equal(compiled, eager))
