"""A note for the user: which variant of a kernel is taken, among which, and who decided.

Takes names and figures as text. Gives a frozen record. Refuses nothing.

>>> str(VariantNote("schedule", "k1", "looped", "option", ("looped",)))
'k1: variant looped, by option'
>>> str(VariantNote("choices", "k1", "cut", "measure", ("looped", "cut"), "20 us looped, 9 us cut"))
'k1: variant cut of looped, cut, by measure (20 us looped, 9 us cut)'
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

# "option": forced by the option `variant`. "record": the winner of an earlier process. "size": the sizes of each call.
# "measure": the tuner, now or at the first call. "learned": a learned choice. "cost": the estimated seconds.
Decider: TypeAlias = Literal["option", "record", "size", "measure", "learned", "cost"]
DECIDERS: tuple[Decider, ...] = get_args(Decider)


@dataclass(frozen=True, slots=True)
class VariantNote:
    """Which variant a kernel takes; the default for now if it is decided at a call. `figures`: what it is based on.

    `prices`: by option its estimated seconds, if they decided; on a CPU with one thread and with sixteen.
    """

    stage: str
    kernel: str
    taken: str
    by: Decider
    options: tuple[str, ...]
    figures: str = field(default="", compare=False)
    prices: tuple[tuple[str, tuple[float, ...]], ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        among = f" of {', '.join(self.options)}" if len(self.options) > 1 else ""
        return f"{self.kernel}: variant {self.taken}{among}, by {self.by}{f' ({self.figures})' if self.figures else ''}"
