"""Rows of the table of rewrites for tests, and functions that compile with them.

The row `softmax_of_product` writes the same two calls anew, so that whatever it changes is a fault of the mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

import minductor
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site

aten = torch.ops.aten
Row = tuple[str, str, str, str]  # rewrite, node, place and reason, as a Report has them


def find_product(site: Site) -> Match | None:
    """A product and the softmax of it."""
    call = site.call(site.anchor)
    product = None if call is None else site.call(call.first)
    if call is None or product is None or product.op != "aten.matmul":
        return None
    return Match(result=site.anchor, inside=(call.first,))


def write_product(match: Match, site: Site) -> Any:
    """The two calls once more."""
    product, call = site.call(match.inside[0]), site.call(match.result)
    assert product is not None
    assert call is not None
    made = site.write(torch.matmul, product.first, product.get("other"))
    return site.write(torch.softmax, made, call.get("dim"))


SOFTMAX_OF_PRODUCT = Rewrite(
    name="softmax_of_product",
    docs="Writes a product and its softmax once more.",
    level="torch",
    anchors=("aten.softmax",),
    find=find_product,
    replace=write_product,
)


def one_call(target: Any, made: Callable[[Site, Sequence[Any]], Any], **fields: Any) -> Rewrite:
    """A row of level "aten" that replaces one call by what `made` writes of its arguments."""
    row = Rewrite(
        name="one_call",
        docs="Replaces one call.",
        level="aten",
        anchors=(str(target.overloadpacket),),
        find=lambda site: Match(result=site.anchor) if site.anchor.target is target else None,
        replace=lambda match, site: made(site, match.result.args),
    )
    return replace(row, **fields)


def compiled_with(row: Rewrite, fn: Callable[..., Any], *args: Any, **options: object) -> tuple[Any, list[Row]]:
    """What a compiled call gives, and the rows of the Reports."""
    torch.compiler.reset()
    seen: list[Any] = []
    compiler = minductor.Compiler(rewrites=(row,), observer=seen.append)
    dynamic = options.pop("dynamic", None)
    result = torch.compile(fn, backend=compiler, options=options, dynamic=dynamic)(*args)
    return result, [each for compiled in seen for each in compiled.report.rewrites]
