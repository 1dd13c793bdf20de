"""The call of a frozen graph: adds the values that were computed from the weights to the arguments of each call.

Takes the compiled rest of a graph, and the function that computes folded values from weights. Gives a call of the
graph's own arguments. Refuses (FrozenChanged) a weight that was changed in place after its values were folded. A write
through `tensor.data` is not seen, since torch does not count it.

Each set of weights has its folded values, which are kept as long as all of its weights live, and for at most MAX_SETS
sets: the one that was used longest ago goes first, and is folded again at its next call.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from minductor.core.errors import FrozenChanged

MAX_SETS = 256


@dataclass(frozen=True, slots=True)
class FoldedWeights:
    """The folded values of one set of weights. `references` are weak: they drop the set when a weight dies."""

    references: tuple[Any, ...]
    versions: list[int]
    values: tuple[Any, ...]


class FrozenCall:
    """A boxed call: one list of arguments, which it empties, to the results."""

    _boxed_call: ClassVar[bool] = True  # AOTAutograd's calling convention

    def __init__(
        self,
        call: Callable[[list[Any]], Sequence[Any]],
        fold: Callable[..., tuple[Any, ...]],
        weights: Mapping[int, str],
    ) -> None:
        """Keeps its arguments; folds nothing before the first call.

        Args:
            call: takes the graph's arguments and the folded values behind them, in one list.
            fold: computes the folded values from the weights.
            weights: the numbers of the arguments that `fold` takes, and their names for errors.
        """
        self.call = call
        self.fold = fold
        self.weights = tuple(weights)
        self.names = tuple(weights.values())
        self.sets: OrderedDict[tuple[int, ...], FoldedWeights] = OrderedDict()
        self.lock = threading.RLock()  # a weight may die while the lock is held
        self.latest: tuple[tuple[int, ...], FoldedWeights] | None = None

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Calls the graph."""
        weights = [args[number] for number in self.weights]
        key = tuple(map(id, weights))
        latest = self.latest
        folded = latest[1] if latest is not None and latest[0] == key else self._folded(key, weights)
        versions = _versions(weights)
        if versions != folded.versions:
            pairs = zip(self.names, versions, folded.versions, strict=True)
            raise FrozenChanged(next(name for name, now, was in pairs if now != was))
        args += folded.values
        return self.call(args)

    def _folded(self, key: tuple[int, ...], weights: Sequence[torch.Tensor]) -> FoldedWeights:
        """The folded values of a set of weights, computed now if they are not kept."""
        with self.lock:
            found = self.sets.get(key)
            if found is None:
                drop = _Drop(weakref.ref(self), key)
                references = tuple(weakref.ref(weight, drop) for weight in weights)
                versions = _versions(weights)
                found = FoldedWeights(references, versions, _computed(self.fold, weights))
                self.sets[key] = found
                while len(self.sets) > MAX_SETS:
                    self.sets.popitem(last=False)
            else:
                self.sets.move_to_end(key)
            self.latest = key, found
            return found

    def drop(self, key: tuple[int, ...]) -> None:
        """Forgets the folded values of a set of weights."""
        with self.lock:
            self.sets.pop(key, None)
            if self.latest is not None and self.latest[0] == key:
                self.latest = None


@dataclass(frozen=True, slots=True)
class _Drop:
    """Drops a set of weights from its FrozenCall, if that lives, once one of them dies."""

    owner: weakref.ref[FrozenCall]
    key: tuple[int, ...]

    def __call__(self, _: object) -> None:
        owner = self.owner()
        if owner is not None:
            owner.drop(self.key)


def _computed(fold: Callable[..., tuple[Any, ...]], weights: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """What `fold` gives, whatever modes of autograd and autocast the caller is in; it is there for all streams."""
    with torch.inference_mode(mode=False), torch.no_grad(), torch._C._DisableAutocast():
        values = tuple(fold(*weights))
    for device in {value.device for value in values if value.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return values


def _versions(weights: Sequence[torch.Tensor]) -> list[int]:
    """How often each tensor was written; 0 for one that was made in inference mode: torch does not count its writes."""
    try:
        return [weight._version for weight in weights]
    except RuntimeError:  # one of them was made in inference mode
        return [0 if weight.is_inference() else weight._version for weight in weights]
