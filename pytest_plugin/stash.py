"""The keys under which the plugin keeps what it knows in pytest's own `config.stash` and `item.stash`.

Takes a config. Gives keys, and answers to two questions about a config. Refuses nothing. Every pytest run loads this
file, so it may not import the types of the values: `session.py` has typed functions that read and make them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

STATE: pytest.StashKey[Any] = pytest.StashKey()  # of a config: its State (session.py)
GOLDEN_USE: pytest.StashKey[Any] = pytest.StashKey()  # of a config: its GoldenUse (goldens/unused_goldens.py)
EVIDENCE: pytest.StashKey[Any] = pytest.StashKey()  # of an item: its Evidence (summary/evidence.py)
TRIAL: pytest.StashKey[Any] = pytest.StashKey()  # of an item: the Trial that it runs in (faults/trials.py)
EXPECTED_TEXT: pytest.StashKey[str] = pytest.StashKey()  # of an item: the text that its known failure must contain
# The key of what the xdist controller and its workers send to each other.
WORKER_KEY = "minductor"


def golden_dir(config: pytest.Config) -> Path:
    """Returns the folder of the golden files, as the ini key `golden_dir` names it."""
    return config.rootpath / str(config.getini("golden_dir"))


def is_worker(config: pytest.Config) -> bool:
    """Tells whether xdist started this process."""
    return hasattr(config, "workerinput")
