"""Ctrl-C as a terminal's foreground process has it, however the tests were started.

What runs in the background of a shell script, or of some CI systems, is started with SIGINT ignored, and Python then
installs no handler: neither this process nor those that it starts would notice an interrupt.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, SIGINT raises KeyboardInterrupt here, and ends processes that are started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
