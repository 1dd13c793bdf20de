"""A failure that is known, as a test says it: `@pytest.mark.compilers(inductor=xfail("the reason"))`.

Takes the reason, and part of what the failure says. Gives an Xfail. Refuses nothing. Every pytest run loads this file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Xfail:
    """A failure that is known; `says` is what its text has to contain."""

    reason: str
    says: str = ""
