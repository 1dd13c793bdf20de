"""A test that is skipped on a device: `@skip_on("cuda", "the reason")`, which is the marker `skip_on`.

Takes a device's id and the reason. Gives a decorator of functions, methods and classes. Refuses nothing: a name that is
no device is pytest's usage error. Every pytest run loads this file.
"""

from __future__ import annotations

import pytest


def skip_on(device: str, reason: str) -> pytest.MarkDecorator:
    """Skips the decorated function, method or class on one device, "cuda" for instance, with the reason.

    >>> skip_on("cuda", "too slow there").mark.kwargs
    {'reason': 'too slow there'}
    """
    return pytest.mark.skip_on(device, reason=reason)
