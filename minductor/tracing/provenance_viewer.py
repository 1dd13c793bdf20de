"""What the provenance viewer of tlparse reads, as artefacts of torch's structured trace.

Takes a stored entry and its ATen graph. Gives artefacts under the names that torch documents for its own compiler
("Inductor provenance"): the nodes before autograd, the ATen graph, the wrapper, and the maps between them. With
TORCH_TRACE=FOLDER, `tlparse --inductor-provenance FILE` shows the three texts side by side and lights what belongs
together. A frame's forward and backward share a page there, which shows the one that was compiled last. Our own
provenance.json is among the artefacts too. Refuses nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from minductor.driver_tasks.artefacts import PROVENANCE, texts
from minductor.ir.report.provenance import Provenance

if TYPE_CHECKING:
    from minductor.frontend.capture.user_places import Sources
    from minductor.runtime.store.store import Entry

VERSION = 2.0  # of the form of the maps; tlparse asks for it
_HANDLE = re.compile(r"(\s*)(#|//) (\d+)(:.*)?$")


class Artefact(NamedTuple):
    """One record of the structured trace: its kind, what is said of it, and its text."""

    kind: str
    about: dict[str, Any]
    text: str


def artefacts(found: Entry, gm: Any) -> Iterator[Artefact]:
    """The artefacts of one graph. `gm` is its ATen graph, whose metadata have the user's lines."""
    from minductor.frontend.capture.capture import sources

    known, origins = sources(gm), Provenance.from_json(json.loads(found.text(PROVENANCE)))
    before = dict(_nodes_before(gm))
    yield _json(f"minductor_{origins.graph}_provenance", origins.to_json())
    yield _text("before_pre_grad_graph", "\n".join(_lines_before(before, known)))
    yield _text("inductor_post_grad_graph", gm.print_readable(print_output=False))
    wrapper = next((text for name, text in texts(found).items() if name.startswith("wrapper.")), "")
    about = {"filename": f"minductor_{origins.graph}"}
    yield Artefact("inductor_output_code", about, annotated(wrapper, origins))
    yield _json("inductor_provenance_tracking_node_mappings", maps(origins, before))
    yield _json("inductor_provenance_tracking_kernel_stack_traces", _lines_of_calls(origins, known))


def maps(origins: Provenance, before: Mapping[str, str]) -> dict[str, Any]:
    """The maps between calls, ATen nodes, and nodes before autograd, by name. `before`: by ATen node the node before.

    >>> maps(Provenance("inference"), {"t": "linear", "addmm": "linear"})["preToPost"]
    {'linear': ['t', 'addmm']}
    """
    later: dict[str, list[str]] = {}
    for node, name in before.items():
        later.setdefault(name, []).append(node)
    return {
        "preToPost": later,
        "postToPre": {node: [name] for node, name in before.items()},
        "cppCodeToPost": {call.key: list(call.nodes) for call in origins.calls},
        "postToCppCode": {node: list(keys) for node, keys in origins.nodes.items()},
        "version": VERSION,
    }


def annotated(wrapper: str, origins: Provenance) -> str:
    """The wrapper with the key of each call in the comment above it, and its name in the call's line.

    tlparse looks for the key, and then for the name before the colon in a line below.
    """
    keys = {call.key.rpartition(":")[2]: call.key for call in origins.calls}
    made, name, mark = list[str](), "", ""
    for line in wrapper.splitlines():
        if name and name not in line:
            line += f"  {mark} {name}"
        name = ""
        if (comment := _HANDLE.match(line)) and comment[3] in keys:
            key, mark = keys[comment[3]], comment[2]
            line, name = f"{comment[1]}{mark} {key}{comment[4] or ''}", key.rpartition(":")[0]
        made.append(line)
    return "\n".join(made) + "\n"


def _nodes_before(gm: Any) -> Iterator[tuple[str, str]]:
    """By ATen node the name of the node of Dynamo's graph that it comes from, where torch has noted it."""
    from minductor.frontend.capture.user_places import nodes_of

    for name, node in nodes_of(gm):
        stack = node.meta.get("source_fn_stack") or node.meta.get("fwd_source_fn_stack")
        if node.op == "call_function" and stack:
            yield name, str(stack[-1][0])


def _lines_before(before: Mapping[str, str], known: Sources) -> Iterator[str]:
    """A line for each node before autograd: its module and the user's line."""
    yield "# Each node of Dynamo's graph = its module, with the user's line"
    first: dict[str, str] = {}
    for node, name in before.items():
        first.setdefault(name, node)
    for name, node in first.items():
        yield f"{name} = {known.module_of(node) or '-'}  # {known.code_of(node)}  ({known.of(node)})"


def _lines_of_calls(origins: Provenance, known: Sources) -> dict[str, list[str]]:
    """By key of a call the user's lines that it comes from, each with its module."""
    return {
        call.key: list(
            dict.fromkeys(
                f"{place}\n    {known.code_of(node)}\n    {known.module_of(node)}".rstrip()
                for node in call.nodes
                if (place := known.of(node))
            )
        )
        for call in origins.calls
    }


def _json(name: str, value: Any) -> Artefact:
    return Artefact("artifact", {"name": name, "encoding": "json"}, json.dumps(value))


def _text(name: str, text: str) -> Artefact:
    return Artefact("artifact", {"name": name, "encoding": "string"}, text)
