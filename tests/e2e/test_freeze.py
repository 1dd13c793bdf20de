"""Frozen graphs: what depends on weights alone is computed once for each set of weights, and at no other time."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_leaves

import minductor
from minductor.core.errors import FrozenChanged, FrozenTraining
from minductor.runtime.launch import frozen_call
from minductor.runtime.launch.frozen_call import FrozenCall


class Layer(nn.Module):
    """A product whose weights are computed from a parameter, and a sum whose summand is a buffer's sine."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) / 4)
        self.register_buffer("shift", torch.randn(8))
        self.unfolded = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight.exp() + self.shift.sin() + self.unfolded)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch.compiler.reset()


class Frozen:
    """Compiles with options={"freeze": True}, and keeps what was compiled and which calls were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[Any] = []
        self.calls: list[weakref.ref[FrozenCall]] = []
        self.compiler = minductor.Compiler(observer=self.seen.append)
        made = FrozenCall.__init__

        def noted(call: FrozenCall, *args: Any) -> None:
            made(call, *args)
            self.calls.append(weakref.ref(call))

        monkeypatch.setattr(FrozenCall, "__init__", noted)

    def __call__(self, fn: Any, **options: object) -> Callable[..., Any]:
        dynamic = options.pop("dynamic", None)
        return torch.compile(fn, backend=self.compiler, dynamic=dynamic, options={"freeze": True, **options})

    def sets(self) -> list[Any]:
        """All folded sets that are kept."""
        return [each for ref in self.calls if (call := ref()) is not None for each in call.sets.values()]


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Frozen:
    return Frozen(monkeypatch)


@pytest.mark.parametrize("options", [{}, {"wrapper": "cpp"}, {"verify_memory": "assert"}, {"dynamic": True}])
def test_values_are_folded_once(frozen: Frozen, options: dict[str, Any]) -> None:
    layer, x = Layer(), torch.randn(3, 8)
    compiled = frozen(layer, **options)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), layer(x))
    assert [each.report.frozen_bytes for each in frozen.seen] == [4 * (64 + 8)]
    assert len(frozen.sets()) == 1


def test_six_layers_share_one_graph(frozen: Frozen) -> None:
    layers = nn.ModuleList(Layer() for _ in range(6))
    eager = copy.deepcopy(layers)
    for layer in layers:
        layer.compile(backend=frozen.compiler, options={"freeze": True})
    x = torch.randn(3, 8)
    for _ in range(2):
        for layer, same in zip(layers, eager, strict=True):
            torch.testing.assert_close(layer(x), same(x))
    assert len(frozen.seen) == 1
    assert len(frozen.sets()) == 6


CHANGES: tuple[tuple[str, Callable[[Layer], object]], ...] = (
    ("weight", lambda layer: layer.weight.add_(1)),
    ("shift", lambda layer: layer.shift.mul_(2)),
    ("weight", lambda layer: layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()})),
    ("weight", lambda layer: _optimizer_step(layer)),
)


def _optimizer_step(layer: Layer) -> None:
    layer.weight.grad = torch.ones_like(layer.weight)
    torch.optim.SGD([layer.weight], lr=0.1).step()


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_a_changed_weight_is_an_error(frozen: Frozen, name: str, change: Callable[[Layer], object]) -> None:
    layer, x = Layer(), torch.randn(3, 8)
    compiled = frozen(layer)
    compiled(x)
    change(layer)
    with pytest.raises(FrozenChanged, match=f"the frozen weight {name} was changed in place") as caught:
        compiled(x)
    assert "hint: torch.compiler.reset() compiles again" in str(caught.value)
    torch.compiler.reset()
    torch.testing.assert_close(compiled(x), layer(x))


def test_tied_weights_and_nested_paths(frozen: Frozen) -> None:
    model = nn.Sequential(Layer(), Layer())
    model[1].weight = model[0].weight
    x = torch.randn(3, 8)
    compiled = frozen(model)
    torch.testing.assert_close(compiled(x), model(x))
    model[1].weight.add_(1)
    with pytest.raises(FrozenChanged, match=r"the frozen weight [01]\.weight was"):
        compiled(x)


def test_a_weight_that_nothing_was_folded_from_must_not_change_either(frozen: Frozen) -> None:
    """Whether a value is folded depends on costs, which no user should have to know."""
    layer, x = Layer(), torch.randn(3, 8)
    compiled = frozen(layer)
    compiled(x)
    layer.unfolded.add_(1)
    with pytest.raises(FrozenChanged, match="the frozen weight unfolded was"):
        compiled(x)


def test_a_write_through_data_is_not_seen(frozen: Frozen) -> None:
    """As the documentation says: torch does not count such writes."""
    layer, x = Layer(), torch.randn(3, 8)
    compiled = frozen(layer)
    before = compiled(x)
    layer.weight.data.add_(1)
    torch.testing.assert_close(compiled(x), before)


def test_new_tensors_get_their_own_set(frozen: Frozen) -> None:
    layer, x = Layer(), torch.randn(3, 8)
    compiled = frozen(layer)
    compiled(x)
    kept = layer.weight
    layer.weight = nn.Parameter(torch.randn(8, 8) / 4)
    torch.testing.assert_close(compiled(x), layer(x))
    assert len(frozen.sets()) == 2
    layer.weight = kept
    torch.testing.assert_close(compiled(x), layer(x))
    assert len(frozen.sets()) == 1  # those of the weight that is gone were dropped
    layer.load_state_dict({name: value + 1 for name, value in layer.state_dict().items()}, assign=True)
    torch.testing.assert_close(compiled(x), layer(x))
    torch.testing.assert_close(frozen(copy.deepcopy(layer))(x), layer(x))


def test_a_function_without_weights_may_hold_constants() -> None:
    table = torch.randn(3, 8)

    def fn(x: Tensor) -> Tensor:
        return x + (table * 2).softmax(-1) + torch.tensor([1.0, 2.0, 3.0])[:, None].exp()

    x = torch.randn(3, 8)
    compiled = torch.compile(fn, backend="minductor", options={"freeze": True})
    for _ in range(2):
        torch.testing.assert_close(compiled(x), fn(x))


def test_a_dead_module_leaves_no_values(frozen: Frozen) -> None:
    layer, x = Layer(), torch.randn(3, 8)
    compiled = frozen(layer)
    compiled(x)
    values = [weakref.ref(value) for each in frozen.sets() for value in each.values]
    assert len(values) == 2
    del layer, compiled
    torch.compiler.reset()
    gc.collect()
    assert [ref() for ref in values] == [None, None]


class Images(nn.Module):
    """A convolution with a norm, and a product that is large enough to be packed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.Linear(1024, 1024)
        self.norm.running_mean.normal_()

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.norm(self.conv(x)), self.linear(y)


def test_a_module_that_dies_leaves_neither_weights_nor_values(frozen: Frozen) -> None:
    """The compiled graph lives on, and serves the modules that are left. The one that dies was called last."""
    x = torch.randn(2, 8, 32, 32).contiguous(memory_format=torch.channels_last), torch.randn(64, 1024)
    modules = [Images().eval() for _ in range(3)]
    compiled = frozen(lambda module, *given: module(*given))
    for module in modules:
        torch.testing.assert_close(compiled(module, *x), module(*x), rtol=1e-4, atol=1e-4)
    applied = {row[0] for row in frozen.seen[-1].report.rewrites if not row[3]}
    assert {"fold_batch_norm", "pack_convolution", "pack_linear"} <= applied and len(frozen.seen) == 1
    weights = [weakref.ref(each) for each in (*modules[2].parameters(), *modules[2].buffers())]
    values = [[weakref.ref(value) for value in each.values] for each in frozen.sets()]
    del modules[2], module
    gc.collect()
    assert {ref() for ref in weights} == {None}
    assert [any(ref() is not None for ref in each) for each in values] == [True, True, False]
    torch.testing.assert_close(compiled(modules[0], *x), modules[0](*x), rtol=1e-4, atol=1e-4)


def test_the_report_counts_what_is_kept(frozen: Frozen) -> None:
    """The bytes of the plain weights that were packed, and of the folded bias; no other weight has a copy."""
    module = Images().eval()
    x = torch.randn(2, 8, 32, 32).contiguous(memory_format=torch.channels_last), torch.randn(64, 1024)
    frozen(module)(*x)
    (kept,) = frozen.sets()
    packed, plain = ([v for v in kept.values if v.is_mkldnn is is_packed] for is_packed in (True, False))
    assert [value.shape for value in packed] == [(16, 8, 3, 3), (1024, 1024)] and [v.shape for v in plain] == [(16,)]
    assert frozen.seen[-1].report.frozen_bytes == 4 * (16 * 8 * 9 + 1024 * 1024 + 16)


def test_sets_are_bounded(frozen: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_call, "MAX_SETS", 2)
    layers, x = [Layer() for _ in range(4)], torch.randn(3, 8)
    for layer in layers:
        layer.compile(backend=frozen.compiler, options={"freeze": True})
    for layer in (*layers, *layers):
        torch.testing.assert_close(layer(x), Layer.forward(layer, x))
    assert len(frozen.sets()) == 2


def test_threads_share_a_frozen_call(frozen: Frozen) -> None:
    layers, x = [Layer() for _ in range(2)], torch.randn(3, 8)
    for layer in layers:
        layer.compile(backend=frozen.compiler, options={"freeze": True})
        layer(x)
    wrong: list[Layer] = []

    def work(layer: Layer) -> None:
        with torch.no_grad():
            expected = Layer.forward(layer, x)
            wrong.extend(layer for _ in range(200) if not torch.allclose(layer(x), expected, rtol=1e-4, atol=1e-5))

    threads = [threading.Thread(target=work, args=(layer,)) for layer in layers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_gradients_are_refused(frozen: Frozen) -> None:
    with torch.enable_grad(), pytest.raises(Exception, match="a frozen graph is for inference") as caught:
        frozen(Layer())(torch.randn(3, 8))
    assert isinstance(getattr(caught.value, "inner_exception", None), FrozenTraining)


def test_values_do_not_depend_on_the_callers_modes(frozen: Frozen) -> None:
    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8, 8))

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return x + self.a @ self.b

    model, x = Products(), torch.randn(8, 8)
    compiled = frozen(model)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-6, atol=1e-6)
    (kept,) = frozen.sets()
    assert not any(value.is_inference() or value.requires_grad for value in kept.values)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(4, 8))

    def forward(self, x: Tensor) -> Tensor:
        self.kept[1:2] = x
        return self.kept.exp()


@pytest.mark.parametrize(("kind", "size"), [(Norm, (2, 3, 6, 6)), (Cache, (1, 8))])
def test_written_buffers_are_no_constants(frozen: Frozen, kind: type[nn.Module], size: tuple[int, ...]) -> None:
    model = kind().train()
    same = copy.deepcopy(model)
    compiled = frozen(model)
    for _ in range(3):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), same(x), rtol=1e-4, atol=1e-5)
    for own, other in zip(model.buffers(), same.buffers(), strict=True):
        torch.testing.assert_close(own, other)


class Given(nn.Module):
    """Gives a value of its weight alone beside another result."""

    def __init__(self, shown: Callable[[Tensor, int], Any]) -> None:
        super().__init__()
        self.weight, self.shown = nn.Parameter(torch.randn(8, 8)), shown

    def forward(self, x: Tensor) -> Any:
        return x + self.weight.sin(), self.shown(self.weight.exp(), x.shape[0])


SHOWN: tuple[Callable[[Tensor, int], Any], ...] = (
    lambda made, _: made,
    lambda made, _: made.view(2, 32).t(),
    lambda made, rows: made[:rows],  # a view of a symbolic size
    lambda made, _: (made, made[0], made),
    lambda made, _: made.chunk(2),
    lambda made, _: made.view(2, 4, 8) @ made,  # a product whose view torch does not mark as one
)


@pytest.mark.parametrize("shown", SHOWN)
def test_each_call_gives_new_results(frozen: Frozen, shown: Callable[[Tensor, int], Any]) -> None:
    """The caller may write to a result; results that share memory in eager share it here, and no others."""
    model, x = Given(shown), torch.randn(8, 8)
    compiled = frozen(model, dynamic=True)
    for _ in range(3):
        own, eager = (tree_leaves(call(x)) for call in (compiled, model))
        for mine, theirs in zip(own, eager, strict=True):
            torch.testing.assert_close(mine, theirs)
            assert mine.stride() == theirs.stride()
            mine.zero_(), theirs.zero_()
        torch.testing.assert_close(own, eager)
        assert len(set(map(id, own))) == len(set(map(id, eager)))
    assert frozen.seen[-1].report.frozen_bytes >= 4 * 64  # of the sine


def test_values_have_the_strides_that_were_traced(frozen: Frozen) -> None:
    """torch traces the strides of the second operand for a copysign of two dtypes; eager gives those of the first."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Parameter(torch.randn(8, 6).t()), nn.Parameter(torch.randn(6, 8).bfloat16())

        def forward(self, x: Tensor) -> Any:
            return x + 1, torch.copysign(self.first, self.second.masked_fill(self.first > 0, -1))

    model, x = Model(), torch.randn(6, 8)
    for own, eager in zip(frozen(model)(x), model(x), strict=True):
        torch.testing.assert_close(own, eager, check_stride=True)


def test_expanded_values_have_the_strides_that_were_traced(frozen: Frozen) -> None:
    """torch traces 1 along an axis of one element, where eager gives 0."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.place = nn.Parameter(torch.tensor(1.5))

        def forward(self, x: Tensor) -> Tensor:
            return x.scatter(0, self.place.abs().long().expand(7, 3, 1) % 7, 2.0)

    model, x = Model(), torch.randn(7, 3, 1)
    torch.testing.assert_close(frozen(model)(x), model(x))


def test_views_share_the_memory_of_one_folded_value(frozen: Frozen) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x: Tensor) -> Tensor:
            made, (first, second) = self.weight.exp(), self.weight.chunk(2)
            return x * made + made.t() + x * first[1] + x * second[0] + x * made[0]

    model, x = Model(), torch.randn(8, 8)
    compiled = frozen(model)
    torch.testing.assert_close(compiled(x), model(x))
    (kept,) = frozen.sets()
    held = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in kept.values}
    assert sum(held.values()) == frozen.seen[-1].report.frozen_bytes == 4 * 64
    assert model.weight.untyped_storage().data_ptr() not in held


def test_random_calls_and_assertions_stay(frozen: Frozen) -> None:
    weight = nn.Parameter(torch.ones(64))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor) -> Tensor:
            torch._assert_async((self.weight > 0).all(), "a weight is negative")
            return x + torch.dropout(self.weight, 0.5, True).exp()

    compiled = frozen(Model())
    assert not torch.equal(compiled(torch.zeros(64)), compiled(torch.zeros(64)))
    weight.data.neg_()
    torch.compiler.reset()
    with pytest.raises(RuntimeError, match="a weight is negative"):
        compiled(torch.zeros(64))


def test_operators_of_others_are_called_each_time(frozen: Frozen) -> None:
    calls: list[int] = []
    with torch.library._scoped_library("freezing", "FRAGMENT") as library:
        library.define("counted(Tensor x) -> Tensor")
        library.impl("counted", lambda x: (calls.append(1), x + 1)[1], "CPU")
        torch.library.register_fake("freezing::counted", torch.empty_like, lib=library)

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.randn(8))

            def forward(self, x: Tensor) -> Any:
                return x * torch.ops.freezing.counted(self.weight)

        compiled = frozen(Model())
        for _ in range(3):
            compiled(torch.randn(8))
        assert len(calls) == 3


def test_without_weights_nothing_is_frozen(frozen: Frozen) -> None:
    x = torch.randn(8)
    torch.testing.assert_close(frozen(lambda x: x.exp() + 1)(x), x.exp() + 1)
    assert frozen.calls == []
    linear = nn.Linear(8, 8)
    torch.testing.assert_close(frozen(linear)(x), linear(x))
    assert [each.values for each in frozen.sets()] == [()]  # nothing is folded, and its weights are compared


def test_weights_of_a_subclass(frozen: Frozen) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight.exp()

    model, x = Model(), torch.randn(2, 4)
    compiled = frozen(model)
    for _ in range(2):
        own, eager = compiled(x), model(x)
        torch.testing.assert_close((own.a, own.b), (eager.a, eager.b))


def test_a_norm_is_folded_and_explained(frozen: Frozen) -> None:
    model, x = Norm().eval(), torch.randn(2, 3, 6, 6)
    model.norm.running_mean.normal_()
    options: Any = {"rewrites": "-all,+fold_batch_norm"}
    torch.testing.assert_close(frozen(model, **options)(x), model(x), rtol=1e-4, atol=1e-5)
    assert [row[0::3] for row in frozen.seen[-1].report.rewrites] == [("fold_batch_norm", "")]
    explained = str(minductor.explain(model, x, options={"freeze": True, **options}, check=True))
    assert "applied=1 not=0 frozen_bytes=448" in explained
    assert "fold_batch_norm: applied at getitem" in explained
    assert "rewrites: fold_batch_norm 1; frozen: 448 bytes" in explained


def test_packed_weights_are_explained_and_checked() -> None:
    model, x = nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3)).eval(), torch.randn(2, 16, 32, 32)
    explanation = minductor.explain(model, x, options={"freeze": True}, check=True)
    assert "pack_convolution: applied at" in str(explanation)
    assert explanation.first_moved() == "" and len(explanation.roads[0].verdicts) > 10


@pytest.mark.parametrize("trace", ["dir", "html"])
def test_a_trace_shows_rewrites(trace: str, tmp_path: Path) -> None:
    model, x = Norm().eval(), torch.randn(2, 3, 6, 6)
    options: Any = {"freeze": True, "trace": f"{trace}:{tmp_path / 'traced'}"}
    torch.testing.assert_close(
        torch.compile(model, backend="minductor", options=options)(x), model(x), atol=1e-5, rtol=1e-4
    )
    files = [tmp_path / "traced"] if trace == "html" else list((tmp_path / "traced").rglob("*rewrites*"))
    assert len(files) == 1
    assert "fold_batch_norm: applied at getitem" in files[0].read_text("utf-8")
