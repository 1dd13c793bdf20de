"""The winners of measured choices, as the store keeps them.

Takes a store, and what a winner depends on beside the work: target, device, driver, options. Gives the two functions
that the tuner reads and records winners with. Refuses nothing: an entry that is no winner of this version is removed,
and the choice is made again; a winner that cannot be written holds for this process.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minductor.ir.artefact.winner import WINNER, Winner

if TYPE_CHECKING:
    from minductor.runtime.store.store import Store


@dataclass(frozen=True, slots=True)
class Winners:
    """The winners of one place: equal work may have other winners on another device, or with another driver."""

    store: Store
    place: Sequence[str]

    def _key(self, work: str) -> str:
        from minductor.runtime.store.store import digest

        return digest("winner", work, *self.place)

    def recall(self, work: str) -> Winner | None:
        """The recorded winner of some work; None if there is none."""
        entry = self.store.get(self._key(work))
        if entry is None:
            return None
        found = Winner.from_json(entry.text(WINNER)) if WINNER in entry.contents else None
        if found is None:
            self.store.remove(entry)
        return found

    def keep(self, work: str, winner: Winner) -> None:
        """Records a winner, in place of an older one."""
        try:
            entry = self.store.get(self._key(work))
            if entry is not None:  # it names no candidate of today, or the tuner would not have measured
                self.store.remove(entry)
            self.store.put(self._key(work), {WINNER: winner.to_json().encode()})
        except OSError as error:
            logging.getLogger("minductor").info("not recorded: %s: %s", winner, error)
