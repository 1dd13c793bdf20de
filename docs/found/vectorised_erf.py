"""`erf` in vectors is some units in the last place off. Prints how many; exits with 1 if they are more than 4."""

import torch


def units(found, exact):
    unit = torch.exp2(torch.frexp(exact).exponent.double() - 24)
    return float(((found.double() - exact).abs() / unit).max())


if __name__ == "__main__":
    x = torch.linspace(-3, 3, 4096)
    exact = torch.erf(x.double())
    compiled = units(torch.compile(torch.erf, fullgraph=True)(x), exact)
    print("eager    ", units(torch.erf(x), exact))
    print("compiled ", compiled)
    raise SystemExit(compiled > 4)
