"""Matrix products of odd sizes, which may be padded for a GPU's matrix unit: the choice `padding`.

Takes nothing. Gives functions without end (`padding_cases`), and what the choice is asked about one
(`padding_options`). Refuses (ValueError) functions of which no product, or more than one, may be padded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from minductor.bench.measure_options import Found, Function, asked
from minductor.bench.measure_products import ProductCase
from minductor.bench.measure_rows import log_uniform
from minductor.ir.program.nodes import Kernel, Program

USUAL = (64, 128, 256, 512, 768, 1024, 2048, 3072, 4096, 8192)  # of models
ODD = (333, 1000, 1001, 1025, 2049, 3001, 4095, 8191, 30522, 50257, 65024)  # of models, or beside usual ones
SIDE = (17, 32768)  # rows, columns, and products that are summed
BATCHES = (2, 4, 8, 16, 32, 64)
ELEMENTS = 1 << 27  # of each matrix, of all of a batch, at most
SUMS = (1 << 24, 1 << 38)  # products that are summed, of all elements
DTYPES = ("bfloat16", "float16")
EIGHT = 8  # sizes that 8 divides fit in 16 bits

# Functions of two factors, a row of the result and a matrix of its size.
FUNCTIONS: Mapping[str, Function] = {
    "product": lambda a, b, row, like: a @ b,
    "bias": lambda a, b, row, like: torch.addmm(row, a, b),
    "behind_gelu": lambda a, b, row, like: F.gelu(a, approximate="tanh") @ b,
    "before_gelu": lambda a, b, row, like: F.gelu(torch.addmm(row, a, b), approximate="tanh"),
    "residual": lambda a, b, row, like: a @ b + like,
    "loss": lambda a, b, row, like: (a @ b).float().logsumexp(-1),
}
OF_BATCHES = ("product", "behind_gelu", "residual", "loss")  # those of which `a` and `b` may be batches


class PaddingCase(ProductCase):
    """A function of matrices. `is_right_turned`: the right factor is a transposed weight, as in a linear layer;
    `is_left_turned`: the left one is, as in the gradient of a weight."""

    __slots__ = ()

    @property
    def called(self) -> Function:
        return FUNCTIONS[self.function]


def padding_cases(device: str) -> Iterator[PaddingCase]:
    """Functions without end, the same ones each time and on each device. One size at least does not fit."""
    from minductor.frontend.rewrites.pad_products import SHORT_SUM

    draw = random.Random(0)

    def size() -> int:
        kind = draw.random()
        if kind < 0.45:
            return draw.choice(USUAL)
        return draw.choice(ODD) if kind < 0.8 else int(log_uniform(draw, *SIDE))

    while True:
        batch = draw.choice(BATCHES) if draw.random() < 0.2 else 1
        m, n, k = size(), size(), size()
        is_small = max(batch * each for each in (m * n, m * k, n * k)) <= ELEMENTS
        is_odd = n % EIGHT or k % EIGHT
        if not is_small or not is_odd or k <= SHORT_SUM or not SUMS[0] <= batch * m * n * k <= SUMS[1]:
            continue
        name = draw.choice(OF_BATCHES if batch > 1 else [*FUNCTIONS])
        turned = draw.random() < 0.15, draw.random() < 0.6
        yield PaddingCase(name, draw.choice(DTYPES), batch, m, n, k, *turned)


def padding_options(function: Function, args: Sequence[Tensor], target: str) -> Found:
    """The product as it is and the padded one, with the features and what is taken today."""
    return asked("padding", "minductor.frontend.rewrites.pad_products", _by_estimate, function, args, target)


def _by_estimate(program: Program) -> str:
    """Whether a kernel of the program pads."""
    from minductor.frontend.rewrites.pad_products import PADDED, PLAIN

    origins = [origin for node in program.nodes if isinstance(node, Kernel) for origin in node.origins]
    return PADDED if any("constant_pad_nd" in str(origin) for origin in origins) else PLAIN
