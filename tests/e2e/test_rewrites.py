"""The conditions that hold for all rewrites of the graph, and what happens to rows that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import minductor
from minductor.core.errors import MinductorWarning, WrongRewrite
from minductor.driver import Compiled, Compiler
from minductor.frontend.rewrites import rewrite_table
from minductor.frontend.rewrites.rewrite_row import Match, Site
from tests.rewrite_rows import SOFTMAX_OF_PRODUCT, aten, compiled_with, one_call


def plain(x: Tensor, y: Tensor) -> Tensor:
    return torch.softmax(x @ y, -1)


def in_checkpoint(x: Tensor, y: Tensor) -> Any:
    return checkpoint(plain, x, y, use_reentrant=False)


def in_autocast(x: Tensor, y: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return in_checkpoint(x, y), plain(x, y)


def without_gradients(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return plain(x, y)


@pytest.mark.parametrize("fn", [plain, in_checkpoint, in_autocast, without_gradients])
@pytest.mark.parametrize("with_gradients", [False, True])
def test_a_match_is_replaced_in_each_mode(fn: Callable[..., Any], with_gradients: bool) -> None:
    x, y = torch.randn(4, 8, 8, requires_grad=with_gradients), torch.randn(4, 8, 8)
    got, rows = compiled_with(SOFTMAX_OF_PRODUCT, fn, x, y)
    torch.testing.assert_close(got, fn(x, y), rtol=2e-2, atol=1e-3)
    assert {row[3] for row in rows} == {""}
    results = got if isinstance(got, tuple) else (got,)
    assert {each.requires_grad for each in results} == {with_gradients and fn is not without_gradients}


def write_between(x: Tensor, y: Tensor) -> Tensor:
    product = x @ y
    x.add_(1)
    return torch.softmax(product, -1)


def out_between(x: Tensor, y: Tensor) -> Tensor:
    x = x + 0
    product = x @ y
    torch.add(x, 1, out=x)
    return torch.softmax(product, -1) + x


def setitem_between(x: Tensor, y: Tensor) -> Tensor:
    x = x + 0
    product = x @ y
    x[0] = 1
    return torch.softmax(product, -1) + x


def inplace_between(x: Tensor, y: Tensor) -> Tensor:
    x = x + 0
    product = x @ y
    torch.nn.functional.relu(x, inplace=True)
    return torch.softmax(product, -1) + x


def other_reader(x: Tensor, y: Tensor) -> Tensor:
    product = x @ y
    return torch.softmax(product, -1) + product


def other_mode(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        product = x @ y
    return torch.softmax(product, -1)


def other_autocast(x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        product = x @ y
    return torch.softmax(product, -1)


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (write_between, "writes to memory between its calls"),
        (out_between, "writes to memory between its calls"),
        (setitem_between, "writes to memory between its calls"),
        (inplace_between, "writes to memory between its calls"),
        (other_reader, "reads product, which the rewrite would not compute"),
        (other_mode, "its calls run in several modes of autograd or autocast"),
        (other_autocast, "its calls run in several modes of autograd or autocast"),
    ],
)
def test_no_row_replaces(fn: Callable[..., Any], reason: str) -> None:
    x, y = torch.randn(4, 8, 8), torch.randn(4, 8, 8)
    own = x.clone()
    got, rows = compiled_with(SOFTMAX_OF_PRODUCT, fn, own, y)
    other = x.clone()
    torch.testing.assert_close(got, fn(other, y), rtol=2e-2, atol=1e-3)
    torch.testing.assert_close(own, other)
    (own_row,) = [row for row in rows if row[0] == SOFTMAX_OF_PRODUCT.name]
    assert reason in own_row[3]
    assert own_row[2].startswith(f"{__file__}:")


def test_no_row_drops_a_write_to_memory_of_others() -> None:
    def find(site: Site) -> Match | None:
        fill = site.call(site.anchor)
        assert fill is not None
        written = site.call(fill.first)
        found = written is not None and written.op == "aten.masked_fill_"
        return Match(result=site.anchor, inside=(fill.first,)) if found else None

    row = replace(
        SOFTMAX_OF_PRODUCT,
        find=find,
        replace=lambda match, site: site.write(torch.softmax, match.inside[0].args[0], -1),
    )

    def fn(x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(x.masked_fill_(mask, 0.0), -1)

    x, mask = torch.randn(4, 8), torch.rand(4, 8) > 0.5
    own, other = x.clone(), x.clone()
    got, rows = compiled_with(row, fn, own, mask)
    torch.testing.assert_close(got, fn(other, mask))
    torch.testing.assert_close(own, other)
    assert [each[3] for each in rows] == ["masked_fill_ writes to l_x_, which the rewrite would leave as it is"]


def test_seconds_decide() -> None:
    x = torch.randn(4, 8, 8)
    for seconds, why in (((1e-5, 2e-5), "it would take 20 us in place of 10 us"), ((2e-5, 1e-5), "")):
        row = replace(SOFTMAX_OF_PRODUCT, seconds=lambda match, site, seconds=seconds: seconds)
        _, rows = compiled_with(row, plain, x, x)
        assert [each[3] for each in rows] == [why]


def test_dynamic_sizes_get_no_guards_from_a_rewrite() -> None:
    seen: list[Any] = []
    torch.compiler.reset()
    compiler = minductor.Compiler(rewrites=(SOFTMAX_OF_PRODUCT,), observer=seen.append)
    compiled = torch.compile(plain, backend=compiler, dynamic=True)
    for n in (8, 12, 20):
        x, y = torch.randn(4, n, n + 1), torch.randn(4, n + 1, n)
        torch.testing.assert_close(compiled(x, y), plain(x, y))
    assert [len(each.report.rewrites) for each in seen] == [1]


def scaled(x: Tensor) -> Tensor:
    return x.exp() * 2


def _fails(site: Site, args: Any) -> Any:
    raise ZeroDivisionError("no reason")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            lambda site, args: site.write(aten.exp.default, site.write(aten.view.default, args[0], [32])),
            "the size (32)",
        ),
        (lambda site, args: site.write(aten._to_copy.default, args[0], dtype=torch.float64), "the dtype torch.float64"),
        (lambda site, args: site.write(aten.exp.default, site.write(aten.clone.default, args[0])), ""),
        (lambda site, args: args[0], "its value shares the memory of arg0_1"),
        (lambda site, args: _turned(site, args[0]), "the strides (1, 4) in place of (8, 1)"),
        (lambda site, args: site.anchor, "gives exp, which is replaced itself"),
        (lambda site, args: 1, "gives a int in place of a node"),
        (lambda site, args: site.write(aten.exp.default, site.anchor), "exp_default still reads exp"),
        (_fails, "it fails: ZeroDivisionError: no reason"),
        (lambda site, args: site.write(aten.view.default, args[0], [7]), "it fails: RuntimeError"),
        (lambda site, args: _late(site, args[0]), "mul reads exp_default, which is computed later"),
    ],
)
def test_a_wrong_replacement_is_named(made: Any, why: str) -> None:
    x = torch.randn(4, 8)
    row = one_call(aten.exp.default, made)
    if not why:
        got, _ = compiled_with(row, scaled, x)
        torch.testing.assert_close(got, scaled(x))
        return
    with pytest.raises(Exception, match="the rewrite 'one_call' of exp is wrong") as caught:
        compiled_with(row, scaled, x)
    assert why in str(caught.value)
    assert f"at: {__file__}:" in str(caught.value)


def _turned(site: Site, x: Any) -> Any:
    copy = site.write(aten.clone.default, site.write(aten.t.default, x), memory_format=torch.contiguous_format)
    return site.write(aten.t.default, copy)


def _late(site: Site, x: Any) -> Any:
    site.before = site.anchor.graph.output_node()
    return site.write(aten.exp.default, x)


def _no_match(site: Site) -> Any:
    return site.anchor


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"find": lambda site: 1 / 0}, "it fails: ZeroDivisionError: division by zero"),
        ({"find": _no_match}, "`find` gives a Node in place of a Match or None"),
        ({"conditions": (lambda match, site: 1 / 0,)}, "it fails: ZeroDivisionError: division by zero"),
        ({"conditions": (lambda match, site: True,)}, "gives a bool in place of a reason"),
        ({"seconds": lambda match, site: 1 / 0}, "it fails: ZeroDivisionError: division by zero"),
    ],
)
def test_a_row_that_fails_is_named(fields: Any, why: str) -> None:
    row = one_call(aten.exp.default, lambda site, args: site.write(aten.exp.default, *args), **fields)
    with pytest.raises(Exception, match="the rewrite 'one_call' of exp is wrong") as caught:
        compiled_with(row, scaled, torch.randn(4, 8))
    assert why in str(caught.value)
    assert isinstance(getattr(caught.value, "inner_exception", None), WrongRewrite)


@pytest.mark.parametrize("fails", [False, True])
def test_a_row_of_ours_that_is_wrong_is_left_out(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced(site: Site, args: Any) -> Any:
        turned = site.write(aten.t.default, *args)
        return 1 / 0 if fails else turned

    monkeypatch.setattr(rewrite_table, "REWRITES", (one_call(aten.exp.default, replaced),))
    seen: list[Compiled] = []
    x = torch.randn(4, 8)
    with pytest.warns(MinductorWarning, match="the rewrite 'one_call' of exp is wrong, and is left out"):
        got = torch.compile(scaled, backend=Compiler(observer=seen.append))(x)
    torch.testing.assert_close(got, scaled(x))
    assert [why for _, _, _, why in seen[0].report.rewrites if why.startswith("it is wrong: ")]
    torch._dynamo.reset()
    with pytest.raises(Exception, match="the rewrite 'one_call' of exp is wrong"):
        torch.compile(scaled, backend=Compiler(), options={"verify": True})(x)


def test_other_strides_are_followed_and_copied_back() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x.exp()
        return y, y.sin() * 2, y.view(32)

    row = one_call(aten.exp.default, lambda site, args: _turned_exp(site, args[0]), keeps_strides=False)
    x = torch.randn(4, 8)
    got, rows = compiled_with(row, fn, x)
    for own, eager in zip(got, fn(x), strict=True):
        torch.testing.assert_close(own, eager)
        assert own.stride() == eager.stride()
    assert [each[3] for each in rows] == [""]
    assert got[0].untyped_storage()._cdata == got[2].untyped_storage()._cdata


def test_operators_of_others_get_the_old_strides() -> None:
    strides: list[tuple[int, ...]] = []
    with torch.library._scoped_library("rewriting", "FRAGMENT") as library:
        library.define("noted(Tensor x) -> Tensor")
        library.impl("noted", lambda x: (strides.append(x.stride()), x + 1)[1], "CPU")
        torch.library.register_fake("rewriting::noted", lambda x: torch.empty_like(x), lib=library)

        def fn(x: Tensor) -> Any:
            return torch.ops.rewriting.noted(x.exp().sin())

        row = one_call(aten.exp.default, lambda site, args: _turned_exp(site, args[0]), keeps_strides=False)
        x = torch.randn(4, 8)
        got, rows = compiled_with(row, fn, x)
        torch.testing.assert_close(got, fn(x))
    assert [each[3] for each in rows] == [""]
    assert set(strides) == {(8, 1)}


def test_a_write_to_a_value_with_other_strides_stays() -> None:
    def find(site: Site) -> Match | None:
        return Match(result=site.anchor)

    def turned(match: Match, site: Site) -> Any:
        product = site.call(match.result)
        assert product is not None
        swapped = site.write(torch.transpose, product.get("other"), 0, 1)
        other = site.write(torch.transpose, product.first, 0, 1)
        return site.write(torch.transpose, site.write(torch.matmul, swapped, other), 0, 1)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        z = x @ y
        z.add_(1)
        return z * 2

    fields: Any = {"anchors": ("aten.matmul",), "find": find, "replace": turned, "keeps_strides": False}
    x, y = torch.randn(4, 8), torch.randn(8, 6)
    got, rows = compiled_with(replace(SOFTMAX_OF_PRODUCT, **fields), fn, x, y)
    torch.testing.assert_close(got, fn(x, y))
    assert [each[3] for each in rows] == ["add_ writes to memory that would have other strides"]


def _turned_exp(site: Site, x: Any) -> Any:
    return site.write(aten.exp.default, _turned(site, x))


def test_the_second_compile_reports_the_same() -> None:
    x = torch.randn(4, 8, 8)
    reports: list[Any] = []
    for _ in range(2):
        torch.compiler.reset()
        compiler = minductor.Compiler(rewrites=(SOFTMAX_OF_PRODUCT,), observer=reports.append)
        torch.compile(lambda x: plain(x, x), backend=compiler)(x)
    first, second = reports
    assert second.was_hit
    assert first.report.rewrites == second.report.rewrites != ()


def test_names_in_the_option() -> None:
    x = torch.randn(4, 8, 8)
    for option, count in (("", 1), ("-softmax_of_product", 0), ("-all,+softmax_of_product", 1), ("-all", 0)):
        _, rows = compiled_with(SOFTMAX_OF_PRODUCT, plain, x, x, rewrites=option)
        assert len(rows) == count
    with pytest.raises(Exception, match="did you mean 'softmax_of_product'"):
        compiled_with(SOFTMAX_OF_PRODUCT, plain, x, x, rewrites="-softmax_of_products")
    with pytest.raises(Exception, match="two have this one"):
        compiled_with(replace(SOFTMAX_OF_PRODUCT, name="fold_batch_norm"), plain, x, x)
