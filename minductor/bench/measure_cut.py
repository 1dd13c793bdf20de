"""Reductions and scans of few rows or columns, which a GPU computes whole or cut in parts: the choice `cut`.

Takes nothing. Gives functions without end (`cut_cases`), and what the choice is asked about one (`cut_options`).
Refuses (ValueError) functions of which no reduction, or more than one, may be cut.
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
from minductor.ir.program.nodes import Program
from minductor.ir.program.variant_note import VariantNote

ELEMENTS = (1 << 18, 1 << 27)  # of a kernel: at least, at most
ROWS_KEPT, COLUMNS_KEPT = (1, 1 << 10), (1, 1 << 13)  # with more, the machine is full
REDUCED = (512, 1 << 22)  # elements that are reduced to one: a single program takes long for more
DTYPES = ("bfloat16", "float32", "float16")
OF_ONE_SIZE = 3  # functions
USUAL = (1, 2, 8, 16, 32, 64, 128, 256, 512, 768, 1024)  # rows or columns that are kept

# Functions of a matrix, and of a vector as long as its rows. The first ones reduce rows, the others columns.
ROWS: Mapping[str, Function] = {
    "sum": lambda x, w: x.sum(-1),
    "largest": lambda x, w: x.amax(-1),
    "place_of_largest": lambda x, w: x.argmax(-1),
    "var_mean": lambda x, w: torch.var_mean(x, -1),
    "logsumexp": lambda x, w: x.logsumexp(-1),
    "dot": lambda x, w: (x * w).sum(-1),
    "square_error": lambda x, w: (x - w).square().mean(-1),
    "softmax": lambda x, w: x.softmax(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, w.shape, w, w),
    "rms_norm": lambda x, w: F.rms_norm(x, w.shape, w),
    "cumsum": lambda x, w: x.cumsum(-1),
}
COLUMNS: Mapping[str, Function] = {
    "sum_of_columns": lambda x, w: x.sum(0),
    "largest_of_columns": lambda x, w: x.amax(0),
    "var_mean_of_columns": lambda x, w: torch.var_mean(x, 0),
    "gradient_of_weight": lambda x, w: (x * (x + w)).sum(0),
    "two_sums_of_columns": lambda x, w: (x.sum(0), (x * w).sum(0)),
    "sums_both_ways": lambda x, w: ((x * w).sum(-1), x.sum(0)),
}
FUNCTIONS: Mapping[str, Function] = {**ROWS, **COLUMNS}


class CutCase(NamedTuple):
    """A function of a matrix and a vector, with their sizes and dtype."""

    function: str
    dtype: str
    rows: int
    columns: int

    @property
    def name(self) -> str:
        return f"{self.function} {self.dtype} {self.group}"

    @property
    def group(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def called(self) -> Function:
        return FUNCTIONS[self.function]

    def args(self, device: str) -> tuple[Tensor, ...]:
        dtype = getattr(torch, self.dtype)
        x = torch.randn(self.rows, self.columns, device=device, dtype=dtype)
        return x, torch.randn(self.columns, device=device, dtype=dtype)


def cut_cases(device: str) -> Iterator[CutCase]:
    """Functions without end, the same ones each time and on each device."""
    draw = random.Random(0)
    while True:
        by_row = draw.random() < 0.6
        most = ROWS_KEPT if by_row else COLUMNS_KEPT
        kept = draw.choice(USUAL) if draw.random() < 0.4 else int(log_uniform(draw, *most))
        reduced = min(max(REDUCED[0], int(log_uniform(draw, *ELEMENTS) / kept)), REDUCED[1])
        if draw.random() < 0.5:
            reduced = 1 << reduced.bit_length() - 1
        if kept * reduced > ELEMENTS[1]:
            continue
        for name in draw.sample([*(ROWS if by_row else COLUMNS)], OF_ONE_SIZE):
            sizes = (kept, reduced) if by_row else (reduced, kept)
            yield CutCase(name, draw.choice(DTYPES), *sizes)


def cut_options(function: Function, args: Sequence[Tensor], target: str) -> Found:
    """Whole and cut, with the features and what prices say."""
    return asked("cut", "minductor.passes.split.split", _by_prices, function, args, target)


def _by_prices(program: Program) -> str:
    """The option that the stage `split` took."""
    (taken,) = {note.taken for note in program.notes if isinstance(note, VariantNote) and note.stage == "split"}
    return taken
