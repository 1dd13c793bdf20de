"""What every test run of the project shares: the hypothesis profile, pytest's own tests of plugins, and a store of the
run's own, so that no test meets what another run compiled."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import settings

# The same examples in every run and no deadline: a red test is red for everybody, and on a busy machine too.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("repeatable")
# `make test-all` names it by --hypothesis-profile.
settings.register_profile("many", derandomize=True, deadline=None, max_examples=500)

# tests/plugin runs the plugin in test suites of its own
pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # xdist's controller has made it
        return
    folder = tempfile.mkdtemp(prefix="minductor-tests-")
    patch = pytest.MonkeyPatch()
    patch.setenv("MINDUCTOR_CACHE_DIR", folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.add_cleanup(patch.undo)


def pytest_runtest_call(item: pytest.Item) -> None:
    """Dynamo empties the processor's cache after each compile to time the guards for its log, which takes 23 ms.

    A worker of minductor imports Triton for 2 seconds: tests share those that are equal, but for `own_workers`.
    """
    guards = sys.modules.get("torch._dynamo.guards")
    if hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = _no_time
    pool: Any = sys.modules.get("minductor.runtime.build.pool")
    if pool is not None:
        own = vars(pool).setdefault("_OwnLive", pool._Live)
        pool._Live = own if item.get_closest_marker("own_workers") else _shared_workers


def _no_time(*args: object) -> float:
    return 0.0


_SHARED: dict[object, Any] = {}
MOST_SHARED = 4  # pools; the oldest ends with the last test that holds it


def _shared_workers(size: int, environ: Mapping[str, str | None]) -> Any:
    """The workers of a pool: those of an earlier pool of this size, environment, folder and places of imports."""
    pool: Any = sys.modules["minductor.runtime.build.pool"]
    settings = frozenset((name, value) for name, value in environ.items() if name != "PYTEST_CURRENT_TEST")
    key = os.getpid(), size, settings, os.getcwd(), tuple(sys.path)
    live = _SHARED.pop(key, None) or pool._OwnLive(size, environ)
    live.close = _close_nothing  # a pool that is closed leaves them to the next one
    _SHARED[key] = live
    if len(_SHARED) > MOST_SHARED:
        del _SHARED[next(iter(_SHARED))]
    return live


def _close_nothing() -> None:
    pass


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Eager's operators run on one thread: of several values for one place, several threads keep any."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
