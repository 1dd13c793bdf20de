"""Tests whether a kernel makes NaN or infinity: options={"nan_asserts": True}.

Takes the tensors of a launch, before and after it. Gives nothing if each NaN and infinity in a result has an origin in
what the kernel read. Refuses (NonFiniteResult) a result with NaN where the kernel read none; infinities alike.

Each test waits until the kernel is done. `minductor_finite.h` does the same for a wrapper in C++.

>>> x, y = torch.tensor([1.0, -1.0]), torch.zeros(2)
>>> with Watch("log_0", {"y": y}, (x,)):
...     _ = torch.log(x, out=y)
Traceback (most recent call last):
minductor.core.errors.NonFiniteResult: [MD050] kernel log_0 stores NaN in 1 of the 2 elements of y, the first at [1]; \
y is float32 of size (2,)
  why: no tensor, number or constant that the kernel reads is one
  hint: look for what has no finite result there: a division by 0, a log or root of a negative number, a number too \
large for the dtype; options={'fuse': False} leaves fewer lines to look at
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from minductor.core.errors import NonFiniteResult, user_lines
from minductor.runtime.launch.launch import located


class _Sort(NamedTuple):
    """NaN or infinity: its name in errors, and how tensors and numbers are tested for it."""

    name: str
    of_tensor: Callable[[torch.Tensor], torch.Tensor]
    of_number: Callable[[float], bool]


SORTS = (_Sort("NaN", torch.isnan, math.isnan), _Sort("infinity", torch.isinf, math.isinf))


@dataclass(frozen=True, slots=True)
class _Result:
    """A tensor that a kernel writes. `before`: by sort, the elements that held it before; None means none."""

    name: str
    tensor: torch.Tensor
    is_read: bool
    before: tuple[torch.Tensor | None, ...]


class Watch:
    """A context for one launch: it is made before the kernel runs, and its exit tests what the kernel stored.

    Args:
        kernel: the kernel's name.
        written: the float tensors that the kernel writes, by name.
        read: the float tensors and numbers that the kernel reads. It has a tensor that is read and then overwritten as
            well; of other tensors in `written` the kernel may write a part, so what they held before is no result.
        places: the user's lines that the kernel comes from.
    """

    def __init__(
        self,
        kernel: str,
        written: Mapping[str, torch.Tensor],
        read: Sequence[torch.Tensor | float],
        places: Sequence[str] = (),
    ) -> None:
        self.kernel = kernel
        self.places = places
        both = {id(tensor) for tensor in written.values()} & {id(value) for value in read}
        self.read = [value for value in read if id(value) not in both]
        self.results = [
            _Result(name, tensor, id(tensor) in both, tuple(_marked(sort, tensor) for sort in SORTS))
            for name, tensor in written.items()
        ]

    def __enter__(self) -> None:
        """The kernel is about to run."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raises NonFiniteResult if a result holds NaN or infinity, and the kernel read none."""
        for number, sort in enumerate(SORTS):
            for result in self.results:
                found, before = _marked(sort, result.tensor), result.before[number]
                if found is not None and before is not None:
                    found &= ~before
                if found is not None and found.any() and not self._has_read(number):
                    raise self._error(sort, result, found)

    def _has_read(self, number: int) -> bool:
        """Whether the kernel read a value of SORTS[number]."""
        if any(result.is_read and result.before[number] is not None for result in self.results):
            return True
        sort = SORTS[number]
        tensors = (value for value in self.read if isinstance(value, torch.Tensor))
        numbers = (value for value in self.read if not isinstance(value, torch.Tensor))
        return any(map(sort.of_number, numbers)) or any(_marked(sort, tensor) is not None for tensor in tensors)

    def _error(self, sort: _Sort, result: _Result, found: torch.Tensor) -> NonFiniteResult:
        name, tensor = result.name, result.tensor
        kind = f"{name} is {str(tensor.dtype).removeprefix('torch.')} of size {tuple(tensor.shape)}"
        count = f"in {int(found.sum())} of the {found.numel()} elements of {name}"
        first = found.nonzero()[0].tolist()
        what = f"kernel {self.kernel} stores {sort.name} {count}, the first at {first}; {kind}"
        return NonFiniteResult(located(what, user_lines(self.places)))


def _marked(sort: _Sort, tensor: torch.Tensor) -> torch.Tensor | None:
    """The elements that are NaN, or infinite, as a tensor of bool; None if there are none."""
    if tensor.itemsize == 1:  # torch tests no float8
        tensor = tensor.float()
    elif tensor.dtype == torch.complex32:
        tensor = tensor.to(torch.complex64)
    found = sort.of_tensor(tensor)
    return found if found.any() else None


# --- the same as two calls, for graphs of torch.fx ----------------------------------------------------------------


def watch(
    kernel: str, names: Sequence[str], written: Sequence[torch.Tensor], read: Sequence[torch.Tensor | float]
) -> Watch:
    """The Watch of a launch that follows; `names` are those of the tensors in `written`."""
    return Watch(kernel, dict(zip(names, written, strict=True)), read)


def check(watch: Watch, places: str = "") -> None:
    """The test behind the launch. `places`: the user's lines, one in a line."""
    watch.places = places.split("\n")
    watch.check()
