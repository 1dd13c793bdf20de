"""Known failures and skips that a test declares: xfail("the reason") and skip_on("cuda", "the reason").

Takes a reason, and a text that the failure contains or the id of a device. Gives an Xfail, for the marker
`@pytest.mark.compilers(inductor=xfail("the reason"))`, or the decorator `@skip_on("cuda", "the reason")`. Refuses
nothing: an id that names no device is pytest's usage error. Every pytest run loads this file, so it loads only pytest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Xfail:
    """A failure that is known: the test must fail, and a test that passes is an error.

    Attributes:
        reason: Why the test fails.
        says: A text that the failure's message must contain; empty for any message.
    """

    reason: str
    says: str = ""


def skip_on(device: str, reason: str) -> pytest.MarkDecorator:
    """Skips the decorated function, method or class on one device. The skipped test's body does not run.

    Args:
        device: The id of the device: "cpu", "cuda", "interpret" or "compile:<target>".
        reason: Why; the summary of the run shows it.

    Returns:
        The marker `skip_on`, to be used as a decorator.

    >>> skip_on("cuda", "too slow there").mark.kwargs
    {'reason': 'too slow there'}
    """
    return pytest.mark.skip_on(device, reason=reason)


def devices_and_reason(args: Sequence[object], keywords: Mapping[str, object]) -> tuple[tuple[object, ...], object]:
    """Separates the device ids of a marker `skip_on` from its reason.

    Args:
        args: The positional arguments of the marker.
        keywords: The keyword arguments of the marker.

    Returns:
        The ids, and the reason: the keyword `reason`, or else the last of several positional arguments, or else None.

    >>> devices_and_reason(("cuda", "cpu"), {"reason": "no float64"})
    (('cuda', 'cpu'), 'no float64')
    >>> devices_and_reason(("cuda", "no float64"), {}), devices_and_reason(("cuda",), {})
    ((('cuda',), 'no float64'), (('cuda',), None))
    """
    if "reason" in keywords or len(args) < 2:
        return tuple(args), keywords.get("reason")
    return tuple(args[:-1]), args[-1]
