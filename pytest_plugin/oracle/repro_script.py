"""A script that compiles again what a failing test compiled, without pytest and without the test.

Takes the call that failed. Gives the script, and beside it a file with the arguments. Refuses (CannotRepeat) a call
without a graph, a graph that holds other graphs, and arguments that are too large to keep.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_plugin.oracle import reference_runs

MOST_BYTES = 64 << 20
FAILURE_LINES_SHOWN = 24
SCRIPT = '''\
"""{title}

{why}
"""

from pathlib import Path

import torch
{imports}

class Graph(torch.nn.Module):
{forward}


def run(call, inputs):
    """The outputs, and the gradients of what requires them."""
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) if torch.is_tensor(x) else x for x in inputs]
    torch.manual_seed(0)
    outputs = [out for out in call(*inputs) if torch.is_tensor(out)]
    wanted = [out for out in outputs if out.requires_grad]
    torch.autograd.backward(wanted, [torch.ones_like(out) for out in wanted])
    return outputs + [x.grad for x in inputs if torch.is_tensor(x) and x.grad is not None]


graph = Graph()
inputs, attributes = torch.load(Path(__file__).with_suffix(".pt"))
for name, value in attributes.items():
    setattr(graph, name, value)
compiled = torch.compile(graph, backend={backend!r}, options={options!r}, dynamic={dynamic!r}, fullgraph=True)
for number, (found, eager) in enumerate(zip(run(compiled, inputs), run(graph, inputs), strict=True)):
    errors = (found.double() - eager.double()).abs().masked_fill(found == eager, 0)
    error = errors.max().item() if errors.numel() else 0
    layout = f"{{tuple(found.shape)}} {{found.stride()}}, eager {{eager.stride()}}"
    print(f"{{number}}: {{found.dtype}} {{layout}}, largest difference {{error:.3g}}")
'''


class CannotRepeat(RuntimeError):
    """No script can be written for what a test compiled."""


@dataclass(frozen=True, slots=True)
class CompiledCall:
    """What a test gave to `compiled`: the function, its arguments, and the options of the compilation.

    `grad`: as `compiled` takes it.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Mapping[str, object]
    dynamic: bool | None
    grad: bool | None = None


def write_script(call: CompiledCall, path: Path, backend: str, title: str, why: str) -> None:
    """Writes the script, and its arguments into a file with the ending .pt beside it.

    The user's function is traced by Dynamo for this, which runs it once in eager.

    Args:
        call: The call that failed.
        path: The path of the script.
        backend: torch.compile's name of the backend.
        title: The first line of the script's docstring.
        why: The failure, whose first lines are put below the title.

    Raises:
        CannotRepeat: The call has no graph, its graph holds others, or its arguments are too large.
    """
    import torch

    graph, inputs = trace_graph(call)
    given = [value for value in inputs if isinstance(value, torch.Tensor)]
    if sum(tensor.untyped_storage().nbytes() for tensor in given) > MOST_BYTES:
        raise CannotRepeat(f"its arguments have more than {MOST_BYTES} bytes")
    if any(isinstance(child, torch.nn.Module) for _, child in graph.named_children()):
        raise CannotRepeat("its graph holds other graphs")
    python: Any = graph.graph.python_code("self")
    attributes = {node.target: getattr(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"}
    imports = [_import_line(name, value) for name, value in python.globals.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save((inputs, attributes), path.with_suffix(".pt"))
    text = SCRIPT.format(
        title=title,
        why=textwrap.indent(_first_lines(why).replace("\\", "/").replace('"""', "'''"), "    "),
        imports="".join(sorted(line for line in imports if line)),
        forward=textwrap.indent(python.src.strip("\n"), "    "),
        backend=backend,
        options=dict(call.options),
        dynamic=call.dynamic,
    )
    path.write_text(text, encoding="utf-8")


def _first_lines(why: str) -> str:
    """Returns the first lines of a failure, which say most."""
    lines = why.splitlines()
    return "\n".join([*lines[:FAILURE_LINES_SHOWN], *(["..."] if len(lines) > FAILURE_LINES_SHOWN else [])])


def trace_graph(call: CompiledCall) -> tuple[Any, Sequence[Any]]:
    """Returns the graph that Dynamo gives to a compiler, and the inputs that it is called with."""
    import torch

    tools: Any = torch
    found: list[tuple[Any, Sequence[Any]]] = []

    def backend(gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            own = reference_runs.copy_call(reference_runs.OwnedCall(len, args, {}), exact=False).args
            found.append((gm, [x.detach().requires_grad_(x.requires_grad) if torch.is_tensor(x) else x for x in own]))
            return gm(*args)

        return noted

    torch.compiler.reset()
    own = reference_runs.copy_call(reference_runs.OwnedCall(call.fn, call.args, call.kwargs), exact=False)
    function = tools.compile(own.fn, backend=backend, fullgraph=True, dynamic=call.dynamic)
    function(*own.args, **own.kwargs)
    if not found:
        raise CannotRepeat("Dynamo made no graph of it")
    return found[0]


def _import_line(name: str, value: Any) -> str:
    """Returns the line of the script that defines a name of the graph's code, or an empty text.

    >>> import math
    >>> _import_line("inf", math.inf), _import_line("torch", math), _import_line("sqrt", math.sqrt)
    ("inf = float('inf')\\n", '', 'from math import sqrt\\n')
    """
    if name == "torch":
        return ""
    if isinstance(value, float):
        return f"{name} = float({str(value)!r})\n"
    module, inner = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if module is None or getattr(sys.modules.get(module), str(inner), None) is not value:
        return ""
    return f"from {module} import {inner}\n" if inner == name else f"from {module} import {inner} as {name}\n"
