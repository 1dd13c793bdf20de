"""Gives each weight of an exported program one name.

Takes a torch.export.ExportedProgram. Gives a program in which a tensor with several names, as tied layers have, keeps
the first name only: torch decomposes a program only if the tensors that it changes have one name. Refuses nothing.
`weights_in_one_memory` names tensors that are different windows on one memory, which cannot be merged.

>>> import torch
>>> class Tied(torch.nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.register_buffer("a", torch.zeros(3))
...         self.register_buffer("b", self.a)
...     def forward(self, x):
...         self.a.add_(1)
...         return x + self.b
>>> program = torch.export.export(Tied(), (torch.ones(3),))
>>> [spec.target for spec in merge_tied_weights(program).graph_signature.input_specs]
['a', None]
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature


def merge_tied_weights(program: ExportedProgram) -> ExportedProgram:
    """The same program, in which tensors with the same elements have been merged into the first one."""
    first: dict[Hashable, fx.Node] = {}
    other: dict[fx.Node, fx.Node] = {}  # the placeholder of a dropped name -> the placeholder that replaces it
    for node, _, value in _weights(program):
        layout = (value.data_ptr(), value.dtype, value.shape, value.stride())
        if value.numel() and first.setdefault(layout, node) is not node:
            other[node] = first[layout]
    if not other:
        return program
    graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in program.graph.nodes:
        new[node] = new[other[node]] if node in other else graph.node_copy(node, new.__getitem__)
    dropped = {target for node, target, _ in _weights(program) if node in other}
    signature = program.graph_signature
    return ExportedProgram(
        program.graph_module,
        graph,
        ExportGraphSignature([s for s in signature.input_specs if s.target not in dropped], signature.output_specs),
        {name: value for name, value in program.state_dict.items() if name not in dropped},
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        {name: value for name, value in program.constants.items() if name not in dropped},
        verifiers=program.verifiers,
    )


def weights_in_one_memory(program: ExportedProgram) -> Sequence[str]:
    """The names of the first weights that share memory; empty if no weights do."""
    named: dict[int, list[str]] = {}
    for _, target, value in _weights(program):
        named.setdefault(value.untyped_storage().data_ptr(), []).append(target)
    return next((names for names in named.values() if len(names) > 1), ())


def _weights(program: ExportedProgram) -> Iterator[tuple[fx.Node, str, torch.Tensor]]:
    """The placeholder, name and value of each weight that has memory on the CPU."""
    places = (node for node in program.graph.nodes if node.op == "placeholder")
    for node, spec in zip(places, program.graph_signature.input_specs, strict=True):
        target = spec.target or ""  # an argument has none
        value: Any = program.state_dict.get(target, program.constants.get(target))
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and value.device.type == "cpu":
            yield node, target, value
