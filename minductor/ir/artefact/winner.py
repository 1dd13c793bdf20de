"""What the tuner chose for one kernel and one bucket of sizes, as the store keeps it and a person reads it.

Takes a Winner; gives its JSON and a line of text. Takes such JSON; gives the Winner back. Refuses nothing: for text of
another version, or that is no such JSON, the result is None, and the choice is made again.

The tuner (runtime/tune) makes winners, the driver keeps them in the store, and `minductor cache list` shows them.

>>> won = Winner("warps=8", "fused_add_0", ((16, 31),), 2e-6, 5e-6, "NVIDIA H100", "12080")
>>> Winner.from_json(won.to_json()) == won
True
>>> print(won)
fused_add_0 for sizes 16 to 31: warps=8, 2.0 us instead of 5.0 us, on NVIDIA H100 with driver 12080
>>> print(Winner("default", "sum_1", (), 2e-6, 2e-6))
sum_1: default, 2.0 us
>>> Winner.from_json("warps=8"), Winner.from_json('{"version": 0}')
(None, None)
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

WINNER = "winner.json"  # the file's name, in an entry of its own in the store
VERSION = 1  # of the JSON: entries of other versions count as absent


@dataclass(frozen=True, slots=True)
class Winner:
    """The candidate that is taken for some work, and where it was measured."""

    name: str  # of the candidate
    kernel: str = ""  # the symbol, or the digest of a choice between variants
    sizes: tuple[tuple[int, int], ...] = ()  # of each size in the call: the least and the largest that share the winner
    seconds: float = 0.0  # of a call
    default_seconds: float = 0.0  # of a call of the default candidate, measured beside it
    device: str = ""  # the name of the GPU
    driver: str = ""  # the version of its driver

    def to_json(self) -> str:
        """The winner as JSON, with the version of this form."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Winner | None:
        """The winner that was written; None if the text is of another version or no such JSON."""
        try:
            row: dict[str, Any] = json.loads(text)
            if row.pop("version") != VERSION:
                return None
            sizes = tuple((int(least), int(most)) for least, most in row.pop("sizes"))
            return cls(sizes=sizes, **row)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def __str__(self) -> str:
        ranges = ", ".join(f"{least} to {most}" for least, most in self.sizes)
        sizes = f" for sizes {ranges}" if ranges else ""
        taken = f", {self.seconds * 1e6:.1f} us" if self.seconds else ""
        instead = f" instead of {self.default_seconds * 1e6:.1f} us" if self.default_seconds > self.seconds else ""
        device = f", on {self.device} with driver {self.driver}" if self.device else ""
        return f"{self.kernel}{sizes}: {self.name}{taken}{instead}{device}"
