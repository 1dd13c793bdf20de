"""What is special about a registered backend, shown on the toy. `README.md` says how to run it."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from minductor_toy import BACKEND
from torch import Tensor

import minductor
from minductor.backends import BUILT_IN, Backend, Pass, kinds, register_backend, unregister_backend
from minductor.core.errors import BadOptionValue, TargetElsewhere, UnknownOption, UnknownTarget
from minductor.driver import Compiled, Compiler
from minductor.ir.program.nodes import NodeNote, Program
from minductor.runtime.store.store import Store
from minductor.target import Env


class Watched:
    """A Compiler with a store of its own, and what it compiled."""

    def __init__(self, folder: Path) -> None:
        self.seen: list[Compiled] = []
        self.compiler = Compiler(store=Store(folder), observer=self.seen.append)

    def __call__(self, fn: Any, *args: Tensor, **options: Any) -> Any:
        torch._dynamo.reset()
        return torch.compile(fn, backend=self.compiler, options=options, fullgraph=True)(*args)

    @property
    def last(self) -> Compiled:
        return self.seen[-1]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "store")


@contextmanager
def registered(**changes: Any) -> Iterator[Backend]:
    """A variation of the toy in its place."""
    unregister_backend("toy")
    changed = replace(BACKEND, **changes)
    register_backend(changed)
    try:
        yield changed
    finally:
        unregister_backend("toy")
        register_backend(BACKEND)


@pytest.fixture
def x() -> Tensor:
    assert "toy" in kinds(), "found by its entry point"
    return torch.linspace(-1, 1, 12, device="toy").reshape(3, 4)


def softplus(x: Tensor) -> Tensor:
    return x.exp().log1p()


def test_a_graph_goes_where_its_tensors_are(watched: Watched, x: Tensor) -> None:
    for given in (x, x.cpu()):
        torch.testing.assert_close(watched(softplus, given), softplus(given))
    on_toy, on_cpu = (set(compiled.sources) for compiled in watched.seen)
    assert on_toy == {"toy.c", "wrapper.py"} and on_cpu == {"kernels.cpp", "wrapper.py"}


def test_training_and_sizes_that_change(watched: Watched, x: Tensor) -> None:
    fn = torch.compile(lambda x: torch.softmax(x * 2, -1), backend=watched.compiler, dynamic=True)
    for given in (x, torch.cat([x, x])):
        leaf, other = given.clone().requires_grad_(), given.clone().requires_grad_()
        fn(leaf).square().sum().backward()
        torch.softmax(other * 2, -1).square().sum().backward()
        torch.testing.assert_close(leaf.grad, other.grad)
    assert [compiled.role for compiled in watched.seen] == ["forward", "backward"]


def test_a_target_can_be_named(watched: Watched, x: Tensor) -> None:
    torch.testing.assert_close(watched(softplus, x, target="toy_1"), softplus(x))
    assert "toy.c" in watched.last.sources
    with pytest.raises(Exception, match=TargetElsewhere.code):
        watched(softplus, x.cpu(), target="toy_1")
    with pytest.raises(Exception, match=BadOptionValue.code):
        watched(softplus, x, target="cpu")


def test_what_it_cannot_say_torch_does(watched: Watched, x: Tensor) -> None:
    torch.testing.assert_close(watched(lambda x: x.cumsum(0) + 1, x), x.cumsum(0) + 1)
    ((op, reason),) = watched.last.report.extern_reasons
    assert op == "aten.cumsum.out" and "no scan" in reason


def test_its_library_is_called(watched: Watched, x: Tensor) -> None:
    torch.testing.assert_close(watched(lambda x: x @ x.t(), x), x @ x.t())
    assert "torch.ops.toy.mm.out" in watched.last.sources["wrapper.py"]


def test_an_option_is_part_of_the_key(watched: Watched, x: Tensor) -> None:
    for options, was_hit in (({}, False), ({"toy.optimise": 3}, False), ({}, True), ({"toy.optimise": 2}, True)):
        watched(softplus, x, **options)
        assert watched.last.was_hit == was_hit, options
    watched(softplus, x.cpu())
    watched(softplus, x.cpu(), **{"toy.optimise": 3})
    assert watched.last.was_hit, "it is nothing to the CPU"
    for wrong, error in (({"toy.optimise": 4}, BadOptionValue), ({"toy.optimize": 2}, UnknownOption)):
        with pytest.raises(Exception, match=error.code):
            watched(softplus, x, **wrong)


def test_a_pass_runs_and_its_fingerprint_counts(watched: Watched, x: Tensor) -> None:
    seen: list[str] = []

    def noted(program: Program, env: Env) -> Program:
        seen.append(program.name)
        note = NodeNote("noted", program.name, f"level {env.options.backend_options['toy.optimise']}")
        return replace(program, notes=(*program.notes, note))

    mine = Pass(name="noted", after="fuse", function=noted, fingerprint="1")
    for fingerprint, runs in (("1", 1), ("1", 1), ("2", 2)):
        with registered(passes=(replace(mine, fingerprint=fingerprint),)):
            watched(softplus, x, verify=True)
            assert len(seen) == runs
    watched(softplus, x, verify=True)
    assert not watched.last.was_hit, "without the pass it is another program"


def plus_one(module: torch.fx.GraphModule) -> Callable[..., Any]:
    return lambda *args: [out + 1 for out in module(*args)]


def test_its_fx_hook_adds_one_to_every_output(watched: Watched, x: Tensor, tmp_path: Path) -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return softplus(x), x @ x.t()

    expected = both(x)
    with registered(fx=plus_one):
        torch.testing.assert_close(watched(both, x, wrapper="fx"), tuple(out + 1 for out in expected))
        torch.testing.assert_close(watched(both, x, wrapper="python"), expected)
        torch.testing.assert_close(watched(both, x.cpu(), wrapper="fx"), both(x.cpu()))
        ahead = minductor.to_fx(both, x, options={"cache_dir": str(tmp_path)})
        torch.testing.assert_close(ahead(x), [out + 1 for out in expected])
    torch.testing.assert_close(watched(both, x, wrapper="fx"), expected)


def test_nothing_remains(watched: Watched, x: Tensor) -> None:
    def state() -> tuple[object, ...]:
        keys = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
        return kinds(), torch._dynamo.list_backends(exclude_tags=()), sorted(keys)

    watched(softplus, x.cpu())
    unregister_backend("toy")
    before = state()
    try:
        register_backend(brief := replace(BACKEND, probe=lambda: "for a while"))
        probe = weakref.ref(brief.probe)
        torch.testing.assert_close(watched(softplus, x), softplus(x))
        assert "toy.c" in watched.last.sources
        unregister_backend("toy")
        del brief
        torch.compiler.reset()
        gc.collect()
        assert probe() is None, "somebody holds the record"
        assert state() == before and kinds() == tuple(BUILT_IN)
        with pytest.raises(Exception, match=UnknownTarget.code):
            watched(softplus, x, target="toy_1")
        with pytest.warns(UserWarning, match="toy:0, a device that minductor launches nothing on"):
            watched(softplus, x)
        watched(softplus, x.cpu())
        assert watched.last.was_hit, "other devices' entries are what they were"
    finally:
        register_backend(BACKEND)
