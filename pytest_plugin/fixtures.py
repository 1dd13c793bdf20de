"""The fixtures of the plugin, except the two whose short names other plugins have too (short_names.py).

Takes the test that asks for a fixture. Gives a device, a compiler, the numeric check, golden files or a store. Refuses
what the value of the fixture refuses. Modules are imported inside the fixtures: a run whose tests use no fixture of the
plugin must load neither torch nor a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_plugin.stash import TRIAL

if TYPE_CHECKING:
    from pytest_plugin.adapters import Adapter, FreshStore
    from pytest_plugin.devices.device_choice import Device
    from pytest_plugin.goldens.golden import Goldens
    from pytest_plugin.oracle.compiled import Compile
    from pytest_plugin.oracle.memory import GraphMemory


@pytest.fixture
def minductor_device(request: pytest.FixtureRequest) -> Device:
    """The device that the test runs on, a str that torch calls take; the test runs once for each device.

    Args:
        request: pytest's request.

    Returns:
        A `Device`: a str such as "cuda", with `id` ("compile:sm_90"), `kind` ("compile") and `target` ("sm_90").
    """
    return request.param


@pytest.fixture
def minductor_golden(request: pytest.FixtureRequest) -> Goldens:
    """Compare generated text with the test's golden file: golden.check(run), golden.text(name, text).

    Args:
        request: pytest's request.

    Returns:
        The `Goldens` of this test; docs/testing.md says where the files lie and how they are accepted.
    """
    from pytest_plugin.session import goldens_of

    return goldens_of(request.node)


@pytest.fixture(scope="session")
def compiler(pytestconfig: pytest.Config) -> Adapter:
    """The adapter of the compiler under test, chosen by --compiler.

    Args:
        pytestconfig: pytest's config.

    Returns:
        The adapter; all tests of a run share it.
    """
    from pytest_plugin.session import state_of

    return state_of(pytestconfig).adapter


@pytest.fixture
def compiled(
    request: pytest.FixtureRequest,
    minductor_device: Device,
    compiler: Adapter,
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Compile]:
    """Compile a function in a fresh store, run it, and compare everything it does with eager and with float64.

    `compiled(fn, *args, **kwargs)` runs the user's function: once compiled, once in eager and once in float64, each on
    clones of the arguments. On a compile-only device the results are not compared. torch's random seed is 0 at the
    start of the test.

    Args:
        request: pytest's request.
        minductor_device: The device of the test. The arguments of the function must be made on it.
        compiler: The adapter of the compiler under test.
        tmp_path_factory: Makes the folder of each store.

    Yields:
        A callable that returns a `Run`; `Compile.__call__` lists its arguments and errors.
    """
    import torch

    from pytest_plugin.oracle.compiled import Compile
    from pytest_plugin.session import evidence_of, state_of

    state = state_of(request.config)
    # A trial must compile for itself, and no other test may load what a faulty compiler stored.
    shared = state.shared_store if TRIAL not in request.node.stash else None
    # This fixture does not request `fresh_store`: only a test that does compiles into it.
    if "fresh_store" in request.fixturenames:
        own: FreshStore = request.getfixturevalue("fresh_store")
        shared = own.path

    def folder() -> Path:
        return shared or tmp_path_factory.mktemp("store")

    # Every run of a test has the same random inputs, so that a failure is the same for everybody.
    random: Any = torch.random
    before = random.get_rng_state()
    random.manual_seed(0)
    uses_memory = "memory" in request.fixturenames or request.node.get_closest_marker("memory") is not None
    evidence = evidence_of(request.node)
    make = Compile(
        compiler, folder, evidence.runs.append, minductor_device, policy=state.policy, on_call=evidence.calls.append
    )
    if request.node.get_closest_marker("each_variant") is not None:
        make = replace(make, is_each_variant=True)
    if TRIAL in request.node.stash and not (trial := request.node.stash[TRIAL]).is_test_itself:
        make = replace(make, on_wrong_result=trial.note_wrong_result)
    yield replace(make, extra_options=compiler.memory_options) if uses_memory else make
    random.set_rng_state(before)


@pytest.fixture
def check_accuracy(pytestconfig: pytest.Config) -> Callable[..., float]:
    """Compare a result with eager and with the float64 truth: check_accuracy(actual, eager, exact64).

    The fixture runs no function: the caller gives three results of the same structure. Tolerances are those of the ini
    key `numeric_policy`.

    Args:
        pytestconfig: pytest's config.

    Returns:
        A callable that returns the worst error as a share of the allowed one, and raises `WrongResult` if it is above
        1.
    """
    from pytest_plugin.oracle.accuracy import check_accuracy
    from pytest_plugin.session import state_of

    return partial(check_accuracy, policy=state_of(pytestconfig).policy)


@pytest.fixture
def closer(check_accuracy: Callable[..., float]) -> Callable[..., float]:
    """The fixture `check_accuracy` by its earlier name.

    Args:
        check_accuracy: The fixture.

    Returns:
        The same callable.
    """
    return check_accuracy


@pytest.fixture
def memory() -> Callable[..., GraphMemory]:
    """The life of each storage of a run: memory(run) lists what is allocated and freed, and draws it as bars.

    Returns:
        A callable that takes a `Run`, and the role of one of its graphs if it has several, and returns a `GraphMemory`.
    """
    from pytest_plugin.oracle.memory import memory_of

    return memory_of


@pytest.fixture
def fresh_store(compiler: Adapter, tmp_path_factory: pytest.TempPathFactory) -> Generator[FreshStore]:
    """A private artefact store for this process and its children; the user's is neither read nor written.

    A test that also asks for `compiled` compiles into this store, so that a second compilation finds the first one's
    artefacts. The test fails if the user's own store was used.

    Args:
        compiler: The adapter of the compiler under test.
        tmp_path_factory: Makes the folder of the store.

    Yields:
        A `FreshStore`: its `path`, the stores that were `touched`, and the path of the `users` store.
    """
    with compiler.fresh_store(tmp_path_factory.mktemp("fresh-store")) as store:
        yield store
    if store.users.absolute() in [path.absolute() for path in store.touched]:
        pytest.fail(f"the user's store was used: {store.users}", pytrace=False)


@pytest.fixture
def size_context(compiler: Adapter) -> Any:
    """Symbolic sizes of the compiler under test, to test a matcher or a pass without compiling anything.

    Args:
        compiler: The adapter of the compiler under test.

    Returns:
        What the adapter's `size_context()` returns; minductor's makes sizes and axes. No function is run.
    """
    make = getattr(compiler, "size_context", None)
    if make is None:
        pytest.fail(f"the adapter of {compiler.name} has no size_context", pytrace=False)
    return make()


@pytest.fixture
def dummy_graph(size_context: Any) -> Any:
    """The fixture `size_context` under the name that TorchInductor's tests use.

    Args:
        size_context: The fixture.

    Returns:
        The same value.
    """
    return size_context
