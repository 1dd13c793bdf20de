"""Where the nodes of an ATen graph come from: the user's line, the module, and of a backward's node the forward's.

Takes the GraphModule that AOTAutograd or torch.export made. Gives texts, read from the nodes' metadata when somebody
asks; they are never stored, and no kernel's text has them. Refuses nothing: what torch did not note down is "".

The metadata are Dynamo's (`stack_trace`, `nn_module_stack`) and AOTAutograd's (`seq_nr`: the number of the autograd
node that an operator made, which the backward's operators have too; `fwd_nn_module_stack`: the module stack of the
forward's operator of the same number).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import fx

from minductor.frontend.quirks.torch_versions import source_name

FORWARD_NODE = "minductor_forward_node"  # the key in a node's metadata; frontend/torch_graph/forward_nodes.py sets it


class Sources:
    """The user's line, module path and forward node of each node of a graph; read on demand, never stored.

    A node of a region is named "region.node".
    """

    def __init__(self, gm: fx.GraphModule) -> None:
        self._gm = gm

    @cached_property
    def _metas(self) -> Mapping[str, Mapping[str, Any]]:
        return {name: node.meta for name, node in nodes_of(self._gm)}

    def of(self, node: str) -> str:
        """The "file:line" of a node: the innermost frame of its stack trace that is not in a file of torch.

        If all frames are in files of torch, the innermost one; "" if the node has no stack trace.
        """
        return self._frame(node)[0]

    def code_of(self, node: str) -> str:
        """The text of the line that `of` names, without its indentation; "" if the stack trace has no text."""
        return self._frame(node)[1]

    def place_of(self, node: str) -> str:
        """The line and the module of a node for messages: "model.py:12 in layers.3.mlp"; "" if no line is known."""
        place, module = self.of(node), self.module_of(node)
        return f"{place} in {module}" if place and module else place

    def module_of(self, node: str) -> str:
        """The path of the innermost module that calls a node: "layers.3.mlp"; "" if there is none.

        For a node of a backward graph it is the module of the forward's operator. The path begins below the compiled
        module, or with the variable's name if a compiled function calls the module: "model.layers.3.mlp".
        """
        return module_path(_module_name(self._metas.get(node, {})))

    def modules(self) -> Callable[[str], str]:
        """A `module_of` that keeps no part of the graph alive, for what outlives the compile."""
        names = {name: found for name, node in nodes_of(self._gm) if (found := _module_name(node.meta))}
        return lambda node: module_path(names.get(node, ""))

    def forward_of(self, node: str) -> str:
        """The name of the forward graph's node that a node of a backward graph is the gradient of, or recomputes.

        "" for a node of another graph, for a sum of gradients, and for what the caller of `backward` gives.
        """
        return str(self._metas.get(node, {}).get(FORWARD_NODE, ""))

    def _frame(self, node: str) -> tuple[str, str]:
        """The innermost frame that is the user's, as "file:line" and the line's text."""
        return _user_frame(self._metas.get(node, {}))


def place_of_node(node: fx.Node) -> str:
    """The user's "file:line" of a node of any torch.fx graph, as `Sources.of` gives it."""
    return _user_frame(node.meta)[0]


def _user_frame(meta: Mapping[str, Any]) -> tuple[str, str]:
    """The innermost frame of a node that is in no file of torch, as "file:line" and the line's text."""
    frames = list(_frames(meta.get("stack_trace") or ""))
    torch_folder = f"{Path(torch.__file__).parent}/"
    own = [frame for frame in frames if not frame[0].startswith(torch_folder)]
    return (own or frames or [("", "")])[-1]


def input_paths(gm: fx.GraphModule) -> list[str]:
    """For each input of Dynamo's graph, its path in the user's program: "layers.3.weight" for a weight.

    If all weights belong to one module, the path begins below it, whatever the module is called.
    """
    inputs = gm.graph.find_nodes(op="placeholder")
    sources = [source_name(node) for node in inputs]
    paths = [weight_path(source) or node.name for source, node in zip(sources, inputs, strict=True)]
    is_weight = ["_parameters" in source or "_buffers" in source for source in sources]
    roots = {path.partition(".")[0] for path, held in zip(paths, is_weight, strict=True) if held}
    if len(roots) != 1 or any(
        held and source.startswith("L['self']") for source, held in zip(sources, is_weight, strict=True)
    ):
        return paths
    return [path.partition(".")[2] if held else path for path, held in zip(paths, is_weight, strict=True)]


def weight_path(name: str) -> str:
    """The path of a parameter or buffer, by the name that Dynamo gives it.

    >>> weight_path("L['self']._modules['0']._parameters['weight']"), weight_path("L['x']")
    ('0.weight', 'x')
    """
    return ".".join(part for part in module_path(name).split(".") if part not in ("_parameters", "_buffers"))


def nodes_of(gm: fx.GraphModule, region: str = "") -> Iterator[tuple[str, fx.Node]]:
    """Each node with its name, those of regions too, under the names that `capture` gives them."""
    for node in gm.graph.nodes:
        yield f"{region}.{node.name}" if region else node.name, node
        inner = getattr(gm, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(inner, fx.GraphModule):
            yield from nodes_of(inner, f"{region}_{node.name}" if region else node.name)


def _module_name(meta: Mapping[str, Any]) -> str:
    """Torch's name of the innermost module of a node; "" if there is none."""
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    return str(stack[next(reversed(stack))][0]) if stack else ""


def module_path(name: str) -> str:
    """The path of a module, by the name that Dynamo or torch.export gives it.

    Dynamo begins it with the variable that holds the module: `self` in the method of a compiled module.

    >>> module_path("L['self'].layers[3].mlp"), module_path("G['net']._modules['a'].0"), module_path("layers.0@1")
    ('layers.3.mlp', 'net.a.0', 'layers.0')
    >>> module_path("L['step'].__closure__[1].cell_contents.layers.0")
    'layers.0'
    """
    path = name.rpartition(".cell_contents")[2]  # what is in the closure of a variable's function has no name
    path = re.sub(r"^[LG]\['(\w+)'\]", lambda found: "" if found[1] == "self" else found[1], path)
    path = re.sub(r"\[[\"']?([^\]\"']*)[\"']?\]", r".\1", path)
    path = re.sub(r"@\d+", "", path)  # torch.export counts the calls of one module
    return ".".join(part for part in path.split(".") if part not in ("", "_modules", "_orig_mod", "__self__"))


def _frames(trace: str) -> Iterator[tuple[str, str]]:
    """Each frame of a stack trace as "file:line" and the text of the line."""
    lines = [line.strip() for line in trace.splitlines()]
    for number, place in enumerate(lines):
        if "/minductor/frontend/" in place:
            continue  # control_deps, which calls the user's function
        if place.startswith('File "') and '", line ' in place:
            path, rest = place.removeprefix('File "').split('", line ', 1)
            code = lines[number + 1] if number + 1 < len(lines) else ""
            yield f"{path}:{rest.split(',', 1)[0]}", "" if code.startswith('File "') else code
