"""Matrix products, which a GPU computes by generated code or by the library: the choice `products`.

Takes nothing. Gives functions without end (`product_cases`), and what the choice is asked about one
(`product_options`). Refuses (ValueError) functions of which no product, or more than one, may be either.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from minductor.bench.measure_options import Found, Function, asked
from minductor.bench.measure_rows import log_uniform
from minductor.ir.program.nodes import Extern, Program

USUAL = (16, 32, 64, 128, 256, 384, 512, 768, 1024, 2048, 3072, 4096, 8192)  # of models
SIDE, INNER = (8, 8192), (4, 8192)  # rows and columns; products that are summed
SHORT = (4, 8, 12, 16, 24, 32, 48, 64)  # inner axes for which the library is not made
BATCHES = (2, 4, 8, 16, 32, 64, 128)
ELEMENTS = 1 << 26  # of each matrix, of all of a batch, at most
PRODUCTS = (1 << 20, 1 << 37)  # that are summed, of all elements
SLOW = 1 << 33  # the same of float32, for which no matrix unit is used
DTYPES = ("bfloat16", "float16", "bfloat16", "float32")
OF_ONE_SIZE = 3  # functions

# Functions of two factors, a row of the result and a matrix of its size.
FUNCTIONS: Mapping[str, Function] = {
    "product": lambda a, b, row, like: a @ b,
    "bias": lambda a, b, row, like: torch.addmm(row, a, b),
    "relu": lambda a, b, row, like: torch.relu(a @ b + row),
    "gelu": lambda a, b, row, like: F.gelu(torch.addmm(row, a, b), approximate="tanh"),
    "residual": lambda a, b, row, like: a @ b + like,
    "gate": lambda a, b, row, like: F.silu(a @ b) * like,
    "scaled": lambda a, b, row, like: ((a @ b) * 0.125 + like).sigmoid() * row,
}
OF_BATCHES = ("product", "relu", "residual", "gate", "scaled")  # those of which `a` and `b` may be batches


class ProductCase(NamedTuple):
    """A function of matrices, with their sizes and dtype. `is_left_turned`, `is_right_turned`: the columns of a
    factor lie together."""

    function: str
    dtype: str
    batch: int
    m: int
    n: int
    k: int
    is_left_turned: bool
    is_right_turned: bool

    @property
    def name(self) -> str:
        turned = " turned" * self.is_left_turned + " by turned" * self.is_right_turned
        return f"{self.function} {self.dtype} {self.group}{turned}"

    @property
    def group(self) -> str:
        return f"{self.batch}x{self.m}x{self.n}x{self.k}"

    @property
    def called(self) -> Function:
        return FUNCTIONS[self.function]

    def args(self, device: str) -> tuple[Tensor, ...]:
        def made(rows: int, columns: int, *, is_turned: bool = False) -> Tensor:
            size = (columns, rows) if is_turned else (rows, columns)
            dtype = getattr(torch, self.dtype)
            tensor = torch.randn(*((self.batch,) if self.batch > 1 else ()), *size, device=device, dtype=dtype)
            return tensor.mT if is_turned else tensor

        left = made(self.m, self.k, is_turned=self.is_left_turned)
        right = made(self.k, self.n, is_turned=self.is_right_turned)
        row = torch.randn(self.n, device=device, dtype=left.dtype)
        return left, right, row, made(self.m, self.n)


def product_cases(device: str) -> Iterator[ProductCase]:
    """Functions without end, the same ones each time and on each device."""
    draw = random.Random(0)

    def size(least: int, most: int) -> int:
        return draw.choice(USUAL) if draw.random() < 0.6 else int(log_uniform(draw, least, most))

    while True:
        batch = draw.choice(BATCHES) if draw.random() < 0.25 else 1
        m, n = size(*SIDE), size(*SIDE)
        k = draw.choice(SHORT) if draw.random() < 0.2 else size(*INNER)
        dtype = draw.choice(DTYPES)
        most = SLOW if dtype == "float32" else PRODUCTS[1]
        is_small = max(batch * side for side in (m * n, m * k, n * k)) <= ELEMENTS
        if not is_small or not PRODUCTS[0] <= batch * m * n * k <= most:
            continue
        for name in draw.sample(OF_BATCHES if batch > 1 else [*FUNCTIONS], OF_ONE_SIZE):
            yield ProductCase(name, dtype, batch, m, n, k, draw.random() < 0.15, draw.random() < 0.5)


def product_options(function: Function, args: Sequence[Tensor], target: str) -> Found:
    """The library and generated code, with the features and what is taken today."""
    return asked("products", "minductor.frontend.rules.matmul", _by_rule, function, args, target)


def _by_rule(program: Program) -> str:
    """Whether the program calls the library."""
    return "extern" if any(isinstance(node, Extern) for node in program.nodes) else "native"
