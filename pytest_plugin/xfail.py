"""What a test says of itself: a failure that is known, and a device on which it is skipped.

Takes the reason, and part of what the failure says, or a device's id. Gives an Xfail, for the marker
`@pytest.mark.compilers(inductor=xfail("the reason"))`, or the decorator `@skip_on("cuda", "the reason")`, which is the
marker `skip_on`. Refuses nothing: a name that is no device is pytest's usage error. Every pytest run loads this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Xfail:
    """A failure that is known; `says` is what its text has to contain."""

    reason: str
    says: str = ""


def skip_on(device: str, reason: str) -> pytest.MarkDecorator:
    """Skips the decorated function, method or class on one device, "cuda" for instance, with the reason.

    >>> skip_on("cuda", "too slow there").mark.kwargs
    {'reason': 'too slow there'}
    """
    return pytest.mark.skip_on(device, reason=reason)


def devices_and_reason(args: Sequence[object], keywords: Mapping[str, object]) -> tuple[tuple[object, ...], object]:
    """What a marker `skip_on` says; the reason is its keyword or else its last argument, None if it has neither.

    >>> devices_and_reason(("cuda", "cpu"), {"reason": "no float64"})
    (('cuda', 'cpu'), 'no float64')
    >>> devices_and_reason(("cuda", "no float64"), {}), devices_and_reason(("cuda",), {})
    ((('cuda',), 'no float64'), (('cuda',), None))
    """
    if "reason" in keywords or len(args) < 2:
        return tuple(args), keywords.get("reason")
    return tuple(args[:-1]), args[-1]
