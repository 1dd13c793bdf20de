"""The gradient of two gathers does not compile with vectors of 256 bits. Exits with 1 if it does not."""

import torch
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import InductorError


def fn(x):
    return x[..., torch.tensor([[0], [-1]])][..., torch.tensor([[0], [-1]])]


def gradient(function):
    x = torch.ones(2, 2, 2, requires_grad=True)
    function(x).sum().backward()
    return x.grad


if __name__ == "__main__":
    eager = gradient(fn)
    print("eager    ", eager.flatten().tolist())
    try:
        compiled = gradient(torch.compile(fn, fullgraph=True, options={"cpp.simdlen": 256}))
    except (InductorError, TorchDynamoException) as error:
        raise SystemExit(f"compiled  {type(error).__name__}: {error}") from None
    print("compiled ", compiled.flatten().tolist())
    raise SystemExit(not torch.equal(compiled, eager))
