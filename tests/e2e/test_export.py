"""Exported programs, loaded: eager's results by eager's calls, and clear errors for everything else."""

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import minductor
from minductor.core.errors import NotExportable, PackageElsewhere, PackageRefused, WrongInput
from minductor.ir.plan.plan_json import parse_plan
from minductor.ir.plan.verify_plan import verify_plan
from minductor.runtime.package.archive import open_archive, write_archive
from tests.house.rules import ROOT


class Layer(torch.nn.Module):
    """Weights, buffers that change, an argument that changes, a value, and a structure of results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.table = torch.arange(4.0)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, more: dict[str, Tensor], scale: int = 2) -> Any:
        self.calls.add_(1)
        more["y"].mul_(2)
        made = self.norm(self.linear(x)) * self.table * scale
        return {"made": made, "row": more["y"].view(-1), "size": x.shape[0]}, [None, self.calls + 0]


def arguments(size: int = 6) -> tuple[Any, ...]:
    return torch.randn(size, 8), {"y": torch.ones(size, 2)}, 3


class Made(NamedTuple):
    path: Path
    module: Layer
    manifest: Any


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Made:
    half = Dim("half", min=2, max=64)
    path, module = tmp_path_factory.mktemp("package") / "layer.zip", Layer().train()
    shapes = {"x": {0: 2 * half}, "more": {"y": {0: 2 * half}}, "scale": None}
    return Made(path, module, minductor.export(module, arguments(), path, dynamic_shapes=shapes))


def test_results_changes_and_state_are_eagers(layer: Made) -> None:
    loaded, eager = minductor.load(layer.path), copy.deepcopy(layer.module)
    for size in (6, 4, 128):
        given = arguments(size)
        mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
        torch.testing.assert_close(loaded(*mine), eager(*theirs))
        torch.testing.assert_close(mine[1], theirs[1])
    assert loaded.state["calls"] == 3
    torch.testing.assert_close(loaded.state["norm.running_var"], eager.norm.running_var)


def test_each_loaded_package_has_a_state_of_its_own(layer: Made) -> None:
    first, second = minductor.load(layer.path), minductor.load(layer.path)
    first(*arguments())
    assert (first.state["calls"], second.state["calls"]) == (1, 0)


def test_results_have_no_gradient(layer: Made) -> None:
    x, more, scale = arguments()
    assert not minductor.load(layer.path)(x.requires_grad_(), more, scale)[0]["made"].requires_grad


def test_arguments_may_be_named(layer: Made) -> None:
    x, more, scale = arguments()
    loaded = minductor.load(layer.path)
    expected = loaded(x, copy.deepcopy(more), scale)[0]["made"]
    torch.testing.assert_close(loaded(scale=scale, x=x, more=more)[0]["made"], expected)


def test_other_strides_are_copied_where_nobody_sees_it(layer: Made) -> None:
    x, more, scale = arguments()
    loaded = minductor.load(layer.path)
    expected = loaded(x, copy.deepcopy(more), scale)[0]["made"]
    torch.testing.assert_close(loaded(x.t().contiguous().t(), more, scale)[0]["made"], expected)


X, MORE, SCALE = arguments()
WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "too few": (lambda call: call(X, MORE), "it is missing"),
    "too many": (lambda call: call(X, MORE, SCALE, X), "it has 4 arguments without a name, and 3 were exported"),
    "twice": (lambda call: call(X, MORE, SCALE, x=X), "given twice"),
    "a name": (lambda call: call(X, MORE, scales=3), "there is no such argument"),
    "a structure": (lambda call: call(X, {"z": X}, SCALE), "the structure of the arguments"),
    "a value": (lambda call: call(X, MORE, 4), "it is 4, and 3 was exported"),
    "a kind of value": (lambda call: call(X, MORE, 3.0), "it is 3.0, and 3 was exported"),
    "no tensor": (lambda call: call(X.tolist()[0][0], MORE, SCALE), "it is a float, and a tensor was exported"),
    "a rank": (lambda call: call(X[0], MORE, SCALE), "it has 1 dimensions, and 2 were exported"),
    "a dtype": (lambda call: call(X.double(), MORE, SCALE), "its dtype is torch.float64"),
    "a device": (lambda call: call(X.to("meta"), MORE, SCALE), "it is on meta, and cpu was exported"),
    "a layout": (lambda call: call(X.to_sparse(), MORE, SCALE), "layout torch.sparse_coo"),
    "a fixed size": (lambda call: call(torch.ones(6, 9), MORE, SCALE), r"this call needs \(6, 8\)"),
    "a size below": (lambda call: call(torch.ones(2, 8), MORE, SCALE), "is 2, and 4 to 128 in steps of 2"),
    "a size above": (lambda call: call(torch.ones(130, 8), MORE, SCALE), "is 130, and 4 to 128 in steps of 2"),
    "a size between": (lambda call: call(torch.ones(7, 8), MORE, SCALE), "is 7, and 4 to 128 in steps of 2"),
    "sizes that differ": (lambda call: call(torch.ones(8, 8), MORE, SCALE), r"this call needs \(8, 2\)"),
    "strides of what changes": (lambda call: call(X, {"y": torch.ones(2, 6).t()}, SCALE), "its strides are"),
}


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_call_says_what_is_wrong(layer: Made, how: str) -> None:
    call, why = WRONG[how]
    loaded = minductor.load(layer.path)
    before = MORE["y"].clone()
    with pytest.raises(WrongInput, match=why):
        call(loaded)
    assert loaded.state["calls"] == 0 and torch.equal(MORE["y"], before)


def test_the_manifest_says_what_is_in_the_package(layer: Made) -> None:
    entries = open_archive(layer.path).entries
    manifest = layer.manifest
    assert json.loads(bytes(entries["manifest.json"]))["schema"] == 1
    assert set(manifest.digests) == set(entries) - {"manifest.json"}
    assert manifest.needs_torch == ("aten.addmm.out",) == minductor.load(layer.path).needs_torch
    assert [weight.name for weight in manifest.weights if weight.is_state][-1] == "norm.num_batches_tracked"
    assert all(weight.offset % 64 == 0 for weight in manifest.weights)
    verify_plan(parse_plan(bytes(entries["plan.json"]).decode()))


def changed(layer: Made, path: Path, **changes: Callable[[str], str]) -> Path:
    """The package with texts replaced, sealed again, as another exporter could have written it."""
    entries = {name: bytes(data) for name, data in open_archive(layer.path).entries.items()}
    for name, change in changes.items():
        entry = name.replace("_", ".")
        entries[entry] = change(entries[entry].decode("latin-1")).encode("latin-1")
    write_archive(path, {name: [data] for name, data in entries.items()})
    return path


def replaced(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


ELSEWHERE = {
    "a processor": ("manifest_json", replaced('"features": [', '"features": ["avx9",'), "avx9.*this processor lacks"),
    "an interface": (
        "manifest_json",
        replaced('"interface": "', '"interface": "0'),
        "machine code that this version cannot call",
    ),
    "a machine": ("manifest_json", replaced('"linux ', '"plan9 '), "made for plan9"),
    "a function of torch's": (
        "kernels_so",
        replaced("_cpu_addmm_out\0", "_cpu_addmm_oux\0"),
        "made with torch.*addmm_oux",
    ),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_what_this_process_lacks_is_named(layer: Made, tmp_path: Path, what: str) -> None:
    entry, change, why = ELSEWHERE[what]
    with pytest.raises(PackageElsewhere, match=why):
        minductor.load(changed(layer, tmp_path / "a.zip", **{entry: change}))


def test_another_schema_and_missing_parts_are_refused(layer: Made, tmp_path: Path) -> None:
    newer = changed(layer, tmp_path / "a.zip", manifest_json=lambda text: text.replace('"schema": 1', '"schema": 2'))
    with pytest.raises(PackageRefused, match="schema 2"):
        minductor.load(newer)
    short = changed(layer, tmp_path / "b.zip", constants_bin=lambda text: "")
    with pytest.raises(PackageRefused, match="is outside of its constants"):
        minductor.load(short)
    write_archive(tmp_path / "c.zip", {"manifest.json": [bytes(open_archive(layer.path).entries["manifest.json"])]})
    with pytest.raises(PackageRefused):
        minductor.load(tmp_path / "c.zip")


def test_500_corruptions_are_errors(layer: Made, tmp_path: Path) -> None:
    data, chance, path = layer.path.read_bytes(), random.Random(0), tmp_path / "a.zip"
    for number in range(500):
        broken = bytearray(data)
        for _ in range(1 + number % 3):
            broken[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken if number % 5 else data[: chance.randrange(len(data))])
        with pytest.raises(PackageRefused):
            minductor.load(path)


# What the process that loads may not have: what traces, what compiles, and what computes sizes for it.
BANNED = (
    *("torch._dynamo", "torch._functorch.aot_autograd", "torch._inductor", "sympy", "triton"),
    *(f"minductor.{name}" for name in ("driver", "frontend", "passes", "codegen", "api", "backends", "options")),
)


def test_loading_needs_no_compiler(layer: Made) -> None:
    text = f"""
import json, sys, torch, minductor
call = minductor.load({str(layer.path)!r})
call(torch.ones(6, 8), {{"y": torch.ones(6, 2)}}, 3)
print(json.dumps(sorted(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True, capture_output=True, text=True)
    modules = json.loads(ran.stdout)
    assert [name for name in modules if name.startswith(BANNED)] == []
    assert "minductor.runtime.package.package" in modules


def test_programs_come_as_functions_and_as_exported_programs(tmp_path: Path) -> None:
    class Draw(torch.nn.Module):
        """A branch is given the weight, which the call holds under the same name."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(4.0))

        def forward(self, x: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
            made = torch.cond(x.sum() > 0, lambda x: x.sin() * self.weight, lambda x: x.cos() * 2, (x,))
            return made * n + torch.rand_like(x), x, x[0]

    shapes = ({0: Dim.DYNAMIC}, Dim.DYNAMIC)
    given = (torch.randn(3, 4), 5)
    draw = Draw()
    program = torch.export.export(draw, given, dynamic_shapes=shapes)
    minductor.export(program, (), tmp_path / "a.zip")
    loaded = minductor.load(tmp_path / "a.zip")
    for x, n in (given, (-torch.ones(7, 4), 2)):
        torch.manual_seed(0)
        mine = loaded(x, n)
        torch.manual_seed(0)
        torch.testing.assert_close(mine, draw(x, n))
        assert mine[1] is x and mine[2].data_ptr() == x.data_ptr()  # views of the argument stay that
    with pytest.raises(WrongInput, match="a whole number was exported"):
        loaded(given[0], 2.0)


def test_an_operator_needs_no_names_of_its_arguments(tmp_path: Path) -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    rows = {0: Dim.DYNAMIC}
    minductor.export(torch.add, (x, y), tmp_path / "a.zip", kwargs={"alpha": 2}, dynamic_shapes=(rows, rows, None))
    assert torch.equal(minductor.load(tmp_path / "a.zip")(x[:2], y[:2], alpha=2), torch.add(x[:2], y[:2], alpha=2))


class Tied(torch.nn.Module):
    """One tensor by three names, and a window on it where that is asked for."""

    def __init__(self, start: int) -> None:
        super().__init__()
        memory = torch.zeros(4)
        self.register_buffer("a", memory[:3])
        self.register_buffer("b", self.a)
        self.c = memory[start : start + 3]

    def forward(self, x: Tensor) -> Tensor:
        self.b.add_(x)
        return self.a * 2 + self.c


def test_a_tensor_that_changes_may_have_several_names(tmp_path: Path) -> None:
    minductor.export(Tied(0), (x := torch.randn(3),), tmp_path / "a.zip")
    loaded, eager = minductor.load(tmp_path / "a.zip"), Tied(0)
    for _ in range(2):
        assert torch.equal(loaded(x), eager(x))
    assert list(loaded.state) == ["a"]
    with pytest.raises(NotExportable, match=r"(?s)a and c .*windows on one memory"):
        minductor.export(Tied(1), (x,), tmp_path / "b.zip")


def test_a_place_that_takes_no_file_is_noticed_first(tmp_path: Path) -> None:
    def never(x: Tensor) -> Tensor:
        raise AssertionError

    for place, why in ((tmp_path / "none" / "a.zip", "is no folder"), (tmp_path, "is a folder")):
        with pytest.raises(NotExportable, match=why):
            minductor.export(never, (torch.ones(2),), place)


class Pair(NamedTuple):
    a: Tensor
    b: Tensor


def test_named_results_of_torch_keep_their_names(tmp_path: Path) -> None:
    minductor.export(lambda x: x.sort(), (torch.randn(5),), tmp_path / "a.zip")
    found = minductor.load(tmp_path / "a.zip")(x := torch.randn(5))
    assert torch.equal(found.values, x.sort().values) and isinstance(found, torch.return_types.sort)


def test_what_has_no_name_outside_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(NotExportable, match="structure of its results"):
        minductor.export(lambda x: Pair(x + 1, x), (torch.ones(2),), tmp_path / "a.zip")
    assert list(tmp_path.iterdir()) == []


def test_what_tracing_assumed_of_sizes_is_checked(tmp_path: Path) -> None:
    def choose(x: Tensor, y: Tensor) -> Tensor:
        if x.shape[0] > 2 * y.shape[0]:
            return x.sum()
        return x.sum() * y.sum() if x.shape[0] % 2 == 0 else y[:2]

    given = (torch.ones(6, 8), torch.ones(7, 8))
    minductor.export(choose, given, tmp_path / "a.zip", dynamic_shapes=({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))
    loaded = minductor.load(tmp_path / "a.zip")
    assert loaded(torch.ones(4, 8), torch.ones(2, 8)) == 32 * 16
    for rows, others in ((7, 7), (6, 2)):
        with pytest.raises(RuntimeError, match=r"other sizes than those that were traced: not .*x\.size"):
            loaded(torch.ones(rows, 8), torch.ones(others, 8))


def test_a_number_is_what_tracing_found(tmp_path: Path) -> None:
    """Numbers that tracing found equal, or to be one number, are told by others."""

    def scale(x: Tensor, n: int, m: int, k: int) -> Tensor:
        return x * n * m if n == m and k == 5 else x

    x, shapes = torch.ones(2), (None, Dim.AUTO, Dim.AUTO, Dim.AUTO)
    minductor.export(scale, (x, 3, 3, 5), tmp_path / "a.zip", dynamic_shapes=shapes)
    for call in (
        minductor.load(tmp_path / "a.zip"),
        minductor.to_fx(scale, x, 3, 3, 5, dynamic_shapes=shapes),
    ):
        assert torch.equal(call(x, 4, 4, 5), x * 16)
        for numbers in ((4, 7, 5), (4, 4, 6)):
            with pytest.raises(WrongInput):
                call(x, *numbers)


@pytest.mark.parametrize("like", [torch.ones(1, 3).expand(3, 3), torch.ones(5).as_strided((3, 3), (1, 1))])
def test_no_copy_stands_in_for_elements_that_share_memory(tmp_path: Path, like: Tensor) -> None:
    minductor.export(lambda x: x + 1, (like,), tmp_path / "a.zip")
    loaded = minductor.load(tmp_path / "a.zip")
    assert torch.equal(loaded(like), like + 1)
    with pytest.raises(WrongInput, match=r"strides are \(3, 1\)"):
        loaded(torch.randn(3, 3))


def test_a_window_on_memory_is_that_of_an_input_laid_out_as_the_exported_one(tmp_path: Path) -> None:
    def window(x: Tensor) -> Tensor:
        return -x.as_strided((4,), (1,), 6)

    whole = torch.arange(20.0)
    like, with_gaps = whole[5:14].view(3, 3), torch.ones(9, 9)[:3, :3]
    minductor.export(window, (like,), tmp_path / "a.zip")
    for call in (minductor.load(tmp_path / "a.zip"), minductor.to_fx(window, like)):
        assert torch.equal(call(like), window(like))
        for other, why in ((whole[4:13].view(3, 3), "begins at element 4"), (like.t(), "strides are")):
            with pytest.raises(WrongInput, match=why):
                call(other)
    with pytest.raises(NotExportable, match="is written"):
        minductor.export(lambda x: x.add_(1).as_strided((6,), (1,)) * 2, (with_gaps,), tmp_path / "b.zip")


def test_what_a_compile_leaves_to_eager_is_refused(tmp_path: Path) -> None:
    def beyond(x: Tensor) -> Tensor:
        return x.as_strided((30,), (1,)) * 2

    x = torch.ones(9, 9)[:3, :3]
    for make in (lambda: minductor.export(beyond, (x,), tmp_path / "a.zip"), lambda: minductor.to_fx(beyond, x)):
        with pytest.raises(NotExportable, match=r"(?s)this program .*'as_strided' is a view .*beside .*hint: Keep"):
            make()


def test_named_arguments_keep_the_functions_order(tmp_path: Path) -> None:
    def mix(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return a + 2 * b + 4 * c

    a, b, c = torch.randn(3, 2)
    named: dict[str, Any] = {"c": c, "b": b}
    assert minductor.export(mix, (a,), tmp_path / "a.zip", kwargs=named).parameters == ("a", "b", "c")
    loaded = minductor.load(tmp_path / "a.zip")
    torch.testing.assert_close(loaded(a, c=c, b=b), mix(a, b, c))
    with pytest.raises(WrongInput, match="3 arguments without a name, and 1"):
        loaded(a, b, c)
    torch.testing.assert_close(minductor.to_fx(mix, a, **named)(a, b, c), mix(a, b, c))


def rows(buf0: Tensor, s0: Tensor, check: Tensor, n0: Tensor) -> Tensor:
    made = buf0 * 2 + s0 * 3 - check * n0
    return made.softmax(-1) @ made.T


def shadows(torch: Tensor, device: Tensor, inf: Tensor) -> Tensor:
    return torch + device * inf


@pytest.mark.parametrize("function", [pytest.param(rows, marks=pytest.mark.long), shadows])
def test_an_argument_may_have_any_name(tmp_path: Path, function: Callable[..., Tensor]) -> None:
    """Also one of those that plans and graphs give to what they make."""
    given = [torch.randn(5, 3) for _ in range(function.__code__.co_argcount)]
    shapes = tuple({0: Dim.DYNAMIC} for _ in given)
    minductor.export(function, given, tmp_path / "a.zip", dynamic_shapes=shapes)
    graph = minductor.to_fx(function, *given, dynamic_shapes=shapes)
    for call in (minductor.load(tmp_path / "a.zip"), graph):
        torch.testing.assert_close(call(*given), function(*given))
        with pytest.raises((WrongInput, RuntimeError)):
            call(torch.randn(4, 3), *given[1:])


def test_what_another_package_would_need_is_refused(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(3),))
    with pytest.raises(NotExportable, match="exported already"):
        minductor.export(program, (), tmp_path / "a.zip", dynamic_shapes=({0: Dim.AUTO},))
    with pytest.raises(NotExportable, match="runs on the CPU or on GPUs of NVIDIA"):
        minductor.export(program, (), tmp_path / "a.zip", options={"target": "gfx942"})


def test_an_argument_that_changes_lies_apart_from_the_others(tmp_path: Path) -> None:
    def add(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2

    minductor.export(add, (torch.ones(4), torch.ones(4)), tmp_path / "a.zip")
    for call in (minductor.load(tmp_path / "a.zip"), minductor.to_fx(add, torch.ones(4), torch.ones(4))):
        whole = torch.ones(8)
        assert torch.equal(call(whole[:4], whole[4:]), torch.full((4,), 2.0))
        before = whole.clone()
        for other in (whole[:4], whole[3:7]):
            with pytest.raises(WrongInput, match="shares"):
                call(whole[:4], other)
        assert torch.equal(whole, before)


class Folded(torch.nn.Module):
    """A norm that becomes part of a convolution, and a weight of which only the sine is read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
        self.scale = torch.nn.Parameter(torch.randn(4, 1, 1))
        self.norm.running_mean.normal_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)) * self.scale.sin()


def test_weights_that_are_only_folded_are_not_in_the_file(tmp_path: Path) -> None:
    model, x = Folded().eval(), torch.randn(2, 3, 6, 6)
    exported = torch.export.export(model, (x,))
    code = exported.graph_module.code
    manifest = minductor.export(exported, (), tmp_path / "folded")
    names = [weight.name for weight in manifest.weights]
    assert len(names) == 3 and all(name.endswith("_folded") for name in names)
    torch.testing.assert_close(minductor.load(tmp_path / "folded")(x), model(x), rtol=1e-4, atol=1e-5)
    assert exported.graph_module.code == code
    plain = minductor.export(exported, (), tmp_path / "plain", options={"rewrites": "-all"})
    assert sum("norm" in weight.name for weight in plain.weights) == 4
    torch.testing.assert_close(minductor.load(tmp_path / "plain")(x), model(x), rtol=1e-4, atol=1e-5)
