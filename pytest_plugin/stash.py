"""Where the plugin's state hangs: on pytest's own config and items, made when it is first asked for.

Takes a config; gives its State. Refuses options that cannot be followed (pytest.UsageError).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_plugin.faults.trials import Trial
    from pytest_plugin.goldens.unused import Watch
    from pytest_plugin.oracle.evidence import Evidence
    from pytest_plugin.session import State

STATE: pytest.StashKey[State] = pytest.StashKey()
EVIDENCE: pytest.StashKey[Evidence] = pytest.StashKey()
TRIAL: pytest.StashKey[Trial] = pytest.StashKey()
WATCH: pytest.StashKey[Watch] = pytest.StashKey()
EXPECTED_TEXT: pytest.StashKey[str] = pytest.StashKey()  # what a known failure has to say
# What the controller and its xdist workers tell each other under.
WORKER_KEY = "minductor"


def state_of(config: pytest.Config) -> State:
    if STATE not in config.stash:
        from pytest_plugin.session import make_state

        config.stash[STATE] = make_state(config)
    return config.stash[STATE]


def golden_dir(config: pytest.Config) -> Path:
    return config.rootpath / str(config.getini("golden_dir"))


def is_worker(config: pytest.Config) -> bool:
    """Whether this is a process that xdist started."""
    return hasattr(config, "workerinput")
