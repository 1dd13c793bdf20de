"""Prints a learned choice as a Python module.

Takes a `Learned`. Gives the text of a module with METADATA and `choose(features)`. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps
from typing import Any, cast

from minductor.heuristics.learn import Learned, options_of
from minductor.heuristics.metadata import Metadata
from minductor.heuristics.tree import Leaf, Tree

WIDTH = 120  # of a line
HEAD = '''"""Which option of the choice `{choice}` is the fastest one on {target}.

Takes the features of a kernel. Gives an option, or "unsure". Refuses nothing.

`minductor heuristics learn` wrote this file: do not edit it. METADATA says from which measurements it was learned.
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA: Mapping[str, object] = {{
{metadata}
}}


def choose(features: Mapping[str, float]) -> str:
    """The option for a kernel with these features."""
{body}
'''


def module_name(choice: str, target: str) -> str:
    """The name of the module of a choice for a target.

    >>> module_name("rows", "sm_90")
    'rows_for_sm_90'
    """
    return f"{choice}_for_{target}"


def generate(learned: Learned) -> str:
    """The text of the module."""
    metadata = described(learned)
    rows = "\n".join(line for name, value in metadata._asdict().items() for line in _row(name, value))
    body = "\n".join(_lines(learned.tree, learned.threshold, "    "))
    return HEAD.format(choice=metadata.choice, target=metadata.target, metadata=rows, body=body)


def described(learned: Learned) -> Metadata:
    """The metadata of a learned choice. All choices that are learned today affect bits."""
    samples = learned.samples
    first = samples[0]
    numbers = {name: [sample.features[name] for sample in samples] for name in first.features}
    return Metadata(
        *(first.choice, "bits", first.target, first.device, dict(first.versions)),
        date=max(sample.date for sample in samples),
        kernels=len(samples),
        options=options_of(samples),
        ranges={name: (min(each), max(each)) for name, each in numbers.items()},
        depth=learned.depth,
        leaf=learned.leaf,
        threshold=learned.threshold,
        validation=learned.validation._asdict(),
        held_out=learned.held_out._asdict(),
    )


def _row(name: str, value: Any) -> Iterator[str]:
    """The lines of one entry of METADATA, as ruff formats them."""
    if isinstance(value, dict):
        yield f'    "{name}": {{'
        for key, each in cast("dict[str, Any]", value).items():
            yield f'        "{key}": {_literal(each)},'
        yield "    },"
        return
    one = f'    "{name}": {_literal(value)},'
    if len(one) <= WIDTH or not isinstance(value, tuple):
        yield one
        return
    yield f'    "{name}": ('
    yield from (f"        {_literal(each)}," for each in cast("tuple[Any, ...]", value))
    yield "    ),"


def _literal(value: Any) -> str:
    """A text, a number or a tuple of them as Python, with double quotes."""
    if isinstance(value, tuple):
        parts = list(map(_literal, cast("tuple[Any, ...]", value)))
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    return dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _lines(tree: Tree, threshold: float, indent: str) -> Iterator[str]:
    """The statements that answer as the tree does. Branches that end in the same answer are left out."""
    answer = _single_answer(tree, threshold)
    if answer is not None or isinstance(tree, Leaf):
        yield f'{indent}return "{answer}"'
        return
    yield f'{indent}if features["{tree.feature}"] <= {tree.most!r}:'
    yield from _lines(tree.low, threshold, f"{indent}    ")
    yield from _lines(tree.high, threshold, indent)


def _single_answer(tree: Tree, threshold: float) -> str | None:
    """The answer of all leaves of a tree, if they give the same one."""
    if isinstance(tree, Leaf):
        return tree.answer(threshold)
    low, high = _single_answer(tree.low, threshold), _single_answer(tree.high, threshold)
    return low if low == high else None
