"""The choices that `minductor heuristics collect` measures: one row each.

Takes nothing. Gives for each choice its cases, its options, and the compiler's option that forces one. Refuses nothing.
The features of each are in `heuristics/features.py`; where each is asked, `heuristics/__init__.py` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from torch import Tensor

from minductor.bench.measure_cut import cut_cases, cut_options
from minductor.bench.measure_options import Case, Found, Function, Place, measure
from minductor.bench.measure_padding import padding_cases, padding_options
from minductor.bench.measure_products import product_cases, product_options
from minductor.bench.measure_rows import row_cases, row_options
from minductor.heuristics.samples import Sample


class Client(NamedTuple):
    """One choice. `cases`: on a device, without end. `options_of`: of a function on a target.

    `forced_by`: the option of the compiler that takes one of them.
    """

    cases: Callable[[str], Iterator[Case]]
    options_of: Callable[[Function, Sequence[Tensor], str], Found]
    forced_by: str


CLIENTS: Mapping[str, Client] = {
    "rows": Client(row_cases, row_options, "variant"),
    "cut": Client(cut_cases, cut_options, "variant"),
    "products": Client(product_cases, product_options, "matmul"),
    "padding": Client(padding_cases, padding_options, "rewrites"),
}


def measure_case(choice: str, case: Case, place: Place, folder: str, turn: AbstractContextManager[Any]) -> Sample:
    """The times of all options of a case of a choice. Takes what `measure` takes."""
    client = CLIENTS[choice]
    return measure(choice, client.forced_by, client.options_of, case, place, folder, turn)
