"""torch.compile's own doors, one test each: all that it is asked with backend="minductor" works as with any backend.

`TORCH_LOGS` as a variable of the environment: tests/test_trace.py. One graph in two threads: tests/test_driver.py.
"""

import inspect
import linecache
import logging
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.compiler._cache import CacheArtifactManager
from torch.testing import assert_close
from torch.testing._internal.two_tensor import TwoTensor

from minductor.core.errors import MinductorWarning, UnknownMode

pytestmark = pytest.mark.usefixtures("fresh_store")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing that another test compiled."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def x() -> Tensor:
    return torch.linspace(-1, 1, 32).reshape(4, 8)


def fn(x: Tensor) -> Tensor:
    return torch.softmax(x.sin() * 2, -1)


def compiled(fn: Callable[..., Any] = fn, **how: Any) -> Callable[..., Any]:
    return torch.compile(fn, backend="minductor", **how)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_mode(mode: str, x: Tensor) -> None:
    with warnings.catch_warnings():  # on a CPU no note says that it has no CUDA graphs, which nobody asked for by name
        warnings.simplefilter("error", MinductorWarning)
        assert_close(compiled(mode=mode)(x), fn(x))


def test_a_mode_that_does_not_exist(x: Tensor) -> None:
    with pytest.raises(Exception, match=UnknownMode.code):
        compiled(mode="fast")(x)


def test_options(x: Tensor) -> None:
    assert_close(compiled(options={"fuse": False, "wrapper": "fx"})(x), fn(x))
    with pytest.raises(RuntimeError, match="Either mode or options"):
        compiled(mode="default", options={"fuse": False})


def test_dynamic() -> None:
    made = compiled(dynamic=True)
    with torch.compiler.set_stance("default"):
        assert_close(made(torch.ones(3, 8)), fn(torch.ones(3, 8)))
    with torch.compiler.set_stance("fail_on_recompile"):
        for rows in (5, 9):
            assert_close(made(torch.ones(rows, 8)), fn(torch.ones(rows, 8)))


def test_fullgraph(x: Tensor) -> None:
    def broken(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y * 2

    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(broken, fullgraph=True)(x)
    assert_close(compiled(broken)(x), x.sin() * 2)


def test_reset(x: Tensor) -> None:
    made = compiled()
    made(x)
    torch.compiler.reset()
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="recompile"):
        made(x)
    assert_close(made(x), fn(x))


def test_stance(x: Tensor) -> None:
    made = compiled()
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(made(x), fn(x))
    made(x)
    with torch.compiler.set_stance("eager_on_recompile"):
        assert torch.equal(made(x[:3]), fn(x[:3]))
    with torch.compiler.set_stance("default", force_backend="minductor"):
        assert_close(torch.compile(fn, backend="eager")(x), fn(x))


def test_explain(x: Tensor) -> None:
    told = torch._dynamo.explain(compiled())(x)
    assert (told.graph_count, told.graph_break_count) == (1, 0)


def test_logs(x: Tensor, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "minductor"):
        compiled()(x)
    stages = [record.getMessage() for record in caplog.records if record.name == "minductor"]
    assert any(line.startswith("minductor inference fuse ") for line in stages)


def test_deterministic_algorithms(x: Tensor) -> None:
    index = torch.tensor([0, 1, 0, 1])
    try:
        torch.use_deterministic_algorithms(True)
        made = compiled(lambda x: torch.zeros(2, 8).index_add(0, index, x))
        assert torch.equal(made(x), made(x))
        assert_close(made(x), torch.zeros(2, 8).index_add(0, index, x))
    finally:
        torch.use_deterministic_algorithms(False)


def test_subclass_that_is_taken_apart(x: Tensor) -> None:
    given = TwoTensor(x.clone(), x.clone() * 3).requires_grad_()
    same = TwoTensor(x.clone(), x.clone() * 3).requires_grad_()
    made = compiled()(given)
    assert isinstance(made, TwoTensor)
    made.square().sum().backward()
    fn(same).square().sum().backward()
    assert isinstance(given.grad, TwoTensor) and isinstance(same.grad, TwoTensor)
    for ours, theirs in ((given.grad.a, same.grad.a), (given.grad.b, same.grad.b)):
        assert_close(ours, theirs)


class Named(Tensor):
    """A subclass that adds nothing."""


def test_subclass_without_parts(x: Tensor) -> None:
    made = compiled()(x.as_subclass(Named))
    assert type(made) is Named
    assert_close(made.as_subclass(Tensor), fn(x))


@pytest.mark.parametrize("wrapper", ["python", "cpp"])
def test_jagged_tensors(wrapper: str) -> None:
    """Of their ragged dimension a graph is handed a mark that is no number."""
    made = compiled(lambda rows: rows.sin() * 2, options={"wrapper": wrapper})
    for lengths in ((2, 4), (1, 5, 3)):
        rows = torch.nested.nested_tensor([torch.ones(n, 3) for n in lengths], layout=torch.jagged)
        assert_close(made(rows).values(), rows.values().sin() * 2)


def test_exported_program(x: Tensor) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    rows = torch.export.Dim("rows", min=2, max=64)
    module = torch.export.export(model, (x,), dynamic_shapes=({0: rows},)).module()
    made = compiled(module, fullgraph=True)
    for given in (x, torch.cat([x, x])):
        assert_close(made(given), model(given))


def test_debuggers_see_the_wrapper(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """What depyf.prepare_debug needs: the bytecode is Dynamo's own, and our code has lines in `linecache`."""
    seen: list[Any] = []
    handle = torch._dynamo.convert_frame.register_bytecode_hook(lambda old, new: seen.append((old, new)))
    frames: list[str] = []
    mm = torch.mm

    def noted(*args: Any, **kwargs: Any) -> Tensor:
        frames.extend(frame.filename for frame in traceback.extract_stack())
        return mm(*args, **kwargs)

    try:
        monkeypatch.setattr(torch, "mm", noted)
        assert_close(compiled(lambda x: (x @ x.t()).sin())(x), (x @ x.t()).sin())
    finally:
        handle.remove()
    assert seen and inspect.iscode(seen[0][1])
    (file,) = {name for name in frames if name.startswith("<minductor ")}
    assert any(line.startswith("def call(") for line in linecache.getlines(file))


def test_two_threads_compile_at_once(x: Tensor) -> None:
    made: dict[int, Tensor] = {}
    both = threading.Barrier(2, timeout=60)

    def work(number: int) -> None:
        both.wait()
        made[number] = compiled(lambda x, added: (x + added).sin().sum(0))(x, torch.tensor(float(number)))

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in (1, 2):
        assert_close(made[number], (x + number).sin().sum(0))


def test_artifacts_of_a_cache_are_the_folders(x: Tensor) -> None:
    """`save_cache_artifacts` is of torch's own caches: ours is shared by sharing its folder."""
    CacheArtifactManager.clear()  # of what TorchInductor compiled in this process
    compiled()(x)
    assert torch.compiler.save_cache_artifacts() is None
