"""What the plugin reads out of minductor, and how it keeps the user's store out of tests."""

from pathlib import Path

import pytest
import torch

from minductor.runtime.store.store import Store
from pytest_plugin.adapters import FreshStore
from pytest_plugin.adapters.minductor import Minductor
from pytest_plugin.goldens.views import stage_view
from pytest_plugin.oracle.compiled import Compile
from tests.plugin.conftest import Run


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.sin() @ x, -1) * 2


@pytest.mark.counts(kernels=2, externs=1, block_pointers=0)
def test_texts_facts_stages_and_events(compiled: Compile, fresh_store: FreshStore) -> None:
    run = compiled(f, torch.randn(8, 8))
    (graph,) = run.graphs
    assert (graph.role, graph.was_hit, len(run.wrappers)) == ("inference", False, 1)
    assert [kernel.name for kernel in graph.kernels] == list(run.report.kernel_names)
    for kernel in graph.kernels:
        assert kernel.text.startswith("// ") and kernel.text.endswith("\n}\n") and f"{kernel.name}(" in kernel.text
        assert kernel.text.count("\n}\n") == 1 and kernel.name in run.wrappers[0]
    assert "def call(args):" in run.wrappers[0]
    stages = ["lower", "remove_dead_code", "inline", "split_concat", "elide_copies", "fuse", "loop_order", "split"]
    stages += ["order", "merge_axes", "schedule", "approximate", "bundle", "access", "partition", "memory"]
    assert [name.partition(".")[2] for name in run.stages if name.startswith("inference.")][: len(stages)] == stages
    assert "aten" in run.stages["inference.lower"]
    kinds = [kind for kind, _ in run.events]
    assert (kinds.count("launch"), kinds.count("extern")) == (2, 1)
    assert run.seconds > 0 and (run.report.bytes or 0) > 0


def test_training_sums_both_graphs(compiled: Compile) -> None:
    run = compiled(lambda x: x.sin().sum(), torch.randn(8, 8), grad=True)
    assert [graph.role for graph in run.graphs] == ["forward", "backward"]
    assert run.report.kernels == 2 and list(run.grads) == ["args[0]"]


def test_each_call_has_a_store_of_its_own_unless_all_share_one(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        def f(x):
            return x + 1

        def test_twice(compiled):
            for _ in range(2):
                compiled(f, torch.ones(3))

        @pytest.mark.golden(view="plan")
        def test_plan(compiled, fresh_store):
            compiled(f, torch.ones(3))
        """
    )
    for options, hits in (("", 0), ("--minductor-store=shared", 1), ("--minductor-store=shared", 2)):
        result = run("--compiler=minductor", "--golden=accept", *options.split())
        result.assert_outcomes(passed=2)
        told = f"3 graphs, {hits} of them from a store, 3 kernels" if hits else "3 graphs, 3 kernels"
        result.stdout.fnmatch_lines([f"ran      2 tests on cpu: {told} launched, 0 externs called"])
    assert run("--minductor-store=user").ret == pytest.ExitCode.USAGE_ERROR


def test_a_graph_from_a_store_has_no_stages(compiled: Compile, fresh_store: FreshStore) -> None:
    _, hit = [compiled(f, torch.ones(4, 4)) for _ in range(2)]
    with pytest.raises(LookupError, match="request the fixture `fresh_store`"):
        stage_view(hit, "fuse")


def test_a_fresh_store_is_shared_within_the_test(compiled: Compile, fresh_store: FreshStore) -> None:
    runs = [compiled(f, torch.ones(4, 4)) for _ in range(2)]
    assert [graph.was_hit for run in runs for graph in run.graphs] == [False, True]
    assert runs[0].report.known() == runs[1].report.known() and runs[0].kernels == runs[1].kernels
    assert list(fresh_store.touched) == [fresh_store.path]


def test_a_fresh_store_serves_the_default_compiler(fresh_store: FreshStore) -> None:
    torch.compiler.reset()
    torch.compile(f, backend="minductor")(torch.ones(4, 4))
    assert list(fresh_store.touched) == [fresh_store.path]
    assert len(Store(fresh_store.path).entries()) == 1


def test_a_use_of_the_users_store_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users, fresh = tmp_path / "users", tmp_path / "fresh"
    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(users))
    opened_before = Store.open(None, {"MINDUCTOR_CACHE_DIR": str(users)})
    with Minductor().fresh_store(fresh) as store:
        assert store.users == users and store.touched == []
        opened_before.get("0" * 64)
    assert store.touched == [users]
    opened_before.get("0" * 64)
    assert store.touched == [users]


def test_a_test_that_uses_the_users_store_fails(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import os, pathlib, pytest
        from minductor.runtime.store.store import Store

        @pytest.fixture
        def users(tmp_path, monkeypatch):
            monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(tmp_path))
            return Store(tmp_path)

        def test_clean(users, fresh_store):
            assert os.environ["MINDUCTOR_CACHE_DIR"] == str(fresh_store.path)

        def test_read(users, fresh_store):
            users.get("0" * 64)
        """
    )
    result = run("--compiler=minductor")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*the user's store was used: *"])
