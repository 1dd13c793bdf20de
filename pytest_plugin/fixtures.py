"""The fixtures, without the two whose short names other plugins have too (short_names.py).

Takes the test that asks; gives a device, a compiler, an oracle, goldens, a store. Refuses what they refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_plugin.stash import TRIAL

# a run whose tests ask for none of this loads none of it
if TYPE_CHECKING:
    from pytest_plugin.adapters import Adapter, FreshStore
    from pytest_plugin.devices.device_choice import Device
    from pytest_plugin.goldens.golden import Goldens
    from pytest_plugin.oracle.compiled import Compile
    from pytest_plugin.oracle.memory import GraphMemory


@pytest.fixture
def minductor_device(request: pytest.FixtureRequest) -> Device:
    """The device that the test runs on, a str that torch calls take; the test is parametrised with each one."""
    return request.param


@pytest.fixture
def minductor_golden(request: pytest.FixtureRequest) -> Goldens:
    """Compare generated text with the test's golden file: golden.check(run), golden.text(name, text)."""
    from pytest_plugin.session import goldens_of

    return goldens_of(request.node)


@pytest.fixture(scope="session")
def compiler(pytestconfig: pytest.Config) -> Adapter:
    """The adapter of the compiler under test, chosen by --compiler."""
    from pytest_plugin.session import state_of

    return state_of(pytestconfig).adapter


@pytest.fixture
def compiled(
    request: pytest.FixtureRequest,
    minductor_device: Device,
    compiler: Adapter,
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Compile]:
    """Compile a function in a fresh store, run it, and compare everything it does with eager and with float64."""
    import torch

    from pytest_plugin.oracle.compiled import Compile
    from pytest_plugin.session import evidence_of, state_of

    state = state_of(request.config)
    # a trial has to compile, and nobody may load what a faulty compiler left
    shared = state.shared_store if TRIAL not in request.node.stash else None
    # `fresh_store` is asked for by name only: a test that has it compiles into it, so that it can see hits
    if "fresh_store" in request.fixturenames:
        own: FreshStore = request.getfixturevalue("fresh_store")
        shared = own.path

    def folder() -> Path:
        return shared or tmp_path_factory.mktemp("store")

    # the same inputs in every run of the test: a red one is red for everybody
    random: Any = torch.random
    before = random.get_rng_state()
    random.manual_seed(0)
    tells = "memory" in request.fixturenames or request.node.get_closest_marker("memory") is not None
    evidence = evidence_of(request.node)
    make = Compile(
        compiler, folder, evidence.runs.append, minductor_device, policy=state.policy, on_call=evidence.calls.append
    )
    if TRIAL in request.node.stash and not (trial := request.node.stash[TRIAL]).is_test_itself:
        make = replace(make, on_wrong_result=trial.note_wrong_result)
    yield replace(make, extra_options=compiler.memory_options) if tells else make
    random.set_rng_state(before)


@pytest.fixture
def check_accuracy(pytestconfig: pytest.Config) -> Callable[..., float]:
    """Compare a result with eager and with the float64 truth: check_accuracy(actual, eager, exact64)."""
    from pytest_plugin.oracle.accuracy import check_accuracy
    from pytest_plugin.session import state_of

    return partial(check_accuracy, policy=state_of(pytestconfig).policy)


@pytest.fixture
def closer(check_accuracy: Callable[..., float]) -> Callable[..., float]:
    """The fixture `check_accuracy` by its earlier name."""
    return check_accuracy


@pytest.fixture
def memory() -> Callable[..., GraphMemory]:
    """The life of each storage of a run: memory(run) tells what is allocated, when it is gone, and shows it as bars."""
    from pytest_plugin.oracle.memory import memory_of

    return memory_of


@pytest.fixture
def fresh_store(compiler: Adapter, tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshStore]:
    """A private artefact store for this process and its children; the user's is neither read nor written."""
    with compiler.fresh_store(tmp_path_factory.mktemp("fresh-store")) as store:
        yield store
    if store.users.absolute() in [path.absolute() for path in store.touched]:
        pytest.fail(f"the user's store was used: {store.users}", pytrace=False)


@pytest.fixture
def size_context(compiler: Adapter) -> Any:
    """Sizes and axes as the compiler under test has them, for a matcher or a pass, without compiling anything."""
    make = getattr(compiler, "size_context", None)
    if make is None:
        pytest.fail(f"the adapter of {compiler.name} has no size_context", pytrace=False)
    return make()


@pytest.fixture
def dummy_graph(size_context: Any) -> Any:
    """`size_context` by the name that TorchInductor's tests have for it."""
    return size_context
