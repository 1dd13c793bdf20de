"""Python's garbage collector rests while the stages run, and is afterwards as it was before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from minductor import Compiler
from minductor.driver import Role
from minductor.driver_tasks.collector import paused_collector
from minductor.pipeline import Stage
from minductor.runtime.store.store import Store
from minductor.target import Env


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    was = gc.isenabled()
    yield
    (gc.enable if was else gc.disable)()


@pytest.mark.parametrize("was", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_it_is_as_it_was_before(was: bool, fails: bool) -> None:
    (gc.enable if was else gc.disable)()
    try:
        with paused_collector():
            assert not gc.isenabled()
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert gc.isenabled() == was


def test_the_collector_rests_while_the_stages_run(tmp_path: Path) -> None:
    seen: list[bool] = []

    class Looking(Compiler):
        def run_stage(self, stage: Stage, value: Any, role: Role, env: Env) -> Any:
            seen.append(gc.isenabled())
            return super().run_stage(stage, value, role, env)

    gc.enable()
    torch._dynamo.reset()
    compiler = Looking(store=Store(tmp_path), is_dry=True)
    torch.compile(lambda x: x.sin() + 1, backend=compiler)(torch.ones(3))
    assert set(seen) == {False}
    assert gc.isenabled()
