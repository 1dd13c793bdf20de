"""Random programs as data: inputs and lines of Python, which print as a function and as a script that runs alone.

Takes inputs, lines and the names of the results. Gives text, a function, arguments, and smaller programs. Refuses
nothing: a program whose lines do not fit each other raises when it runs, in eager too.

>>> given = Input("x0", "tensor((4, 6), torch.float32, 'a')[1:]")
>>> p = Program((given,), (Node("t0", "x0.sin()", "functions"),), ("t0",))
>>> print(p.text)
def fn(x0):
    t0 = x0.sin()
    return t0,
>>> p.arguments()[0].stride(), p.scaled(lambda n: 2 * n).inputs[0].expression
((6, 1), "tensor((8, 12), torch.float32, 'a')[1:]")
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# The function `tensor`, which scripts and `arguments` use: small values that depend on a letter, some of them equal.
TENSOR = """\
def tensor(shape, dtype, letter):
    generator = torch.Generator().manual_seed(ord(letter))
    values = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    values = values.to(torch.get_default_device())
    if dtype.is_floating_point:
        return (values if ord(letter) % 2 else (values * 4).round() / 4).to(dtype)
    values = (values * 2).round()
    return (values.abs() if dtype == torch.uint8 else values).to(dtype)
"""


FACTORIES = ("torch.tensor", "torch.arange", "torch.zeros", "torch.ones", "torch.full", "torch.eye", "torch.linspace")


@dataclass(frozen=True, slots=True)
class Input:
    """An argument: a name, and an expression that calls `tensor` or views an earlier argument."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Node:
    """A line: `target = text`, or `text` alone if it writes to the tensor named target."""

    target: str
    text: str
    family: str
    writes: bool = False
    rounds: bool = False

    @property
    def line(self) -> str:
        """The line of Python."""
        return self.text if self.writes else f"{self.target} = {self.text}"


@dataclass(frozen=True, slots=True)
class Program:
    """A function of tensors, and the arguments that it is called with.

    Attributes:
        inputs: The arguments.
        nodes: The lines.
        outputs: The names of the results.
        differentiable: Whether floating arguments require gradients, which are compared too.
        scalable: Whether no line names a size, so that one compilation must serve other sizes.
    """

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    differentiable: bool = False
    scalable: bool = False

    @property
    def text(self) -> str:
        """The source of the function."""
        names = ", ".join(given.name for given in self.inputs)
        return "\n    ".join(
            [f"def fn({names}):", *(node.line for node in self.nodes), f"return {', '.join(self.outputs)},"]
        )

    def __repr__(self) -> str:
        """Returns the text that hypothesis prints of a failure."""
        return "\n" + self.setup + "\n\n\n" + self.text + "\n"

    @property
    def setup(self) -> str:
        """The source that makes the arguments."""
        lines = [f"{given.name} = {given.expression}" for given in self.inputs]
        if self.differentiable:
            names = ", ".join(given.name for given in self.inputs)
            lines.append(f"{names}, = [x.detach().requires_grad_(x.is_floating_point()) for x in ({names},)]")
        return "\n".join(lines)

    def space(self) -> dict[str, Any]:
        """Returns the names that lines use: torch, F, tensor and the arguments."""
        import torch
        from torch.nn import functional

        names: dict[str, Any] = {"torch": torch, "F": functional}
        exec(TENSOR, names)
        exec(self.setup, names)
        return names

    def arguments(self) -> list[Tensor]:
        """Makes new arguments."""
        space = self.space()
        return [space[given.name] for given in self.inputs]

    def fn(self) -> Callable[..., tuple[Any, ...]]:
        """Makes the function anew; its globals are torch and F only, so that two functions share nothing."""
        import torch
        from torch.nn import functional

        space: dict[str, Any] = {"torch": torch, "F": functional}
        exec(compile(self.text, "<program>", "exec"), space)
        return space["fn"]

    def scaled(self, by: Callable[[int], int]) -> Program:
        """Returns the same program on other sizes. Equal sizes stay equal, and sizes below 3 stay as they are."""

        def size(number: re.Match[str]) -> str:
            return number[0] if int(number[0]) < 3 else str(by(int(number[0])))

        found = tuple(replace(given, expression=re.sub(r"\b\d+\b", size, given.expression)) for given in self.inputs)
        return replace(self, inputs=found)

    def on(self, device: str) -> Program:
        """Returns the program with this device in each line that makes a tensor of nothing.

        torch.compile does not see the default device, which is that of the arguments.
        """
        found = tuple(replace(node, text=_on_device(node.text, device)) for node in self.nodes)
        return self if device == "cpu" else replace(self, nodes=found)

    def sizes(self) -> tuple[Program, ...]:
        """Returns the program, and a scalable one on two other sizes too."""
        return (self, self.scaled(lambda n: 2 * n), self.scaled(lambda n: n + 3)) if self.scalable else (self,)

    def script(
        self,
        *,
        backend: str = "minductor",
        why: str = "",
        dynamic: bool = False,
        options: Mapping[str, object] | None = None,
        device: str = "cpu",
    ) -> str:
        """Returns a script that shows the difference from eager on each of the sizes, with torch and the backend."""
        calls = {f"arguments_{n}": one for n, one in enumerate(self.sizes()) if one.is_run_by_eager()}
        return SCRIPT.format(
            why="\n".join(f"# {line}" for line in why.splitlines()),
            tensor=TENSOR,
            text=self.text,
            arguments="\n\n\n".join(one.arguments_text(name) for name, one in calls.items()),
            calls=", ".join(calls),
            backend=backend,
            dynamic=dynamic,
            options=dict(options) if options else None,
            grad=self.differentiable,
            device=f'torch.set_default_device("{device}")\n' if device != "cpu" else "",
        )

    def arguments_text(self, name: str) -> str:
        """Returns the source of a function of that name that makes the arguments."""
        names = ", ".join(given.name for given in self.inputs)
        return "\n    ".join([f"def {name}():", *self.setup.splitlines(), f"return {names},"])

    def is_run_by_eager(self) -> bool:
        """Tells whether eager runs the program without an error."""
        try:
            self.fn()(*self.arguments())
        except Exception:
            return False
        return True


def _on_device(line: str, device: str) -> str:
    tree = ast.parse(line)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in FACTORIES:
            call.keywords.append(ast.keyword("device", ast.Constant(device)))
    return ast.unparse(tree)


SCRIPT = """\
{why}
import torch
from torch.nn import functional as F


{tensor}

{text}


{arguments}


def run(function, arguments):
    outputs = function(*arguments)
    found = {{f"output {{n}}": out for n, out in enumerate(outputs)}}
    roots = [out for out in outputs if out.requires_grad]
    leaves = [x for x in arguments if x.requires_grad]
    if roots and leaves:
        grads = torch.autograd.grad(roots, leaves, [torch.ones_like(r) for r in roots], allow_unused=True)
        found |= {{f"gradient {{n}}": grad for n, grad in enumerate(grads) if grad is not None}}
    storages = [x.untyped_storage()._cdata for x in (*outputs, *arguments)]
    found["common storages"] = torch.tensor([storages.index(storage) for storage in storages])
    return found | {{f"argument {{n}} afterwards": x for n, x in enumerate(arguments)}}


{device}torch.set_grad_enabled({grad})
compiled_fn = torch.compile(fn, backend="{backend}", fullgraph=True, dynamic={dynamic}, options={options})
for arguments in ({calls},):
    eager, compiled = run(fn, arguments()), run(compiled_fn, arguments())
    for name, wanted in eager.items():
        is_laid_out = wanted.numel() > 0 and not name.startswith("gradient")
        torch.testing.assert_close(
            compiled[name], wanted, equal_nan=True, check_stride=is_laid_out, msg=lambda text: f"{{name}}: {{text}}"
        )
print("equal, within the tolerances of torch.testing")
"""


def smaller_programs(program: Program) -> Iterator[Program]:
    """Yields programs with a little less in them, the largest steps first; not all of them run."""
    count = len(program.outputs)
    for n in range(count if count > 1 else 0):
        yield replace(program, outputs=program.outputs[:n] + program.outputs[n + 1 :])
    size = len(program.nodes)
    while size:
        for start in range(len(program.nodes) - size, -1, -size):
            yield replace(program, nodes=program.nodes[:start] + program.nodes[start + size :])
        size //= 2
    for n in reversed(range(len(program.nodes))):
        yield from _without_line(program, n)
    for n, given in enumerate(program.inputs):
        rest = program.inputs[:n] + program.inputs[n + 1 :]
        if rest and not re.search(rf"\b{given.name}\b", " ".join([program.text.partition("\n")[2], repr(rest)])):
            yield replace(program, inputs=rest)
    sizes = sorted({int(n) for given in program.inputs for n in re.findall(r"\b\d+\b", given.expression)})
    for number in reversed(sizes):
        for less in (2, 3, number // 2, number - 1):
            if 2 <= less < number:
                yield _with_size(program, number, less)


def _without_line(program: Program, n: int) -> Iterator[Program]:
    """Yields programs without a line: lines that read its result read one of its operands."""
    node = program.nodes[n]
    if node.writes:
        return
    for operand in dict.fromkeys(re.findall(r"\b[tx]\d+\b", node.text)):
        old = re.compile(rf"\b{node.target}\b")
        later = (
            replace(other, text=old.sub(operand, other.text), target=old.sub(operand, other.target))
            for other in program.nodes[n + 1 :]
        )
        outputs = tuple(old.sub(operand, name) for name in program.outputs)
        yield replace(program, nodes=(*program.nodes[:n], *later), outputs=outputs)


def _with_size(program: Program, old: int, new: int) -> Program:
    inputs = tuple(
        replace(given, expression=re.sub(rf"\b{old}\b", str(new), given.expression)) for given in program.inputs
    )
    return replace(program, inputs=inputs)


def shrink(program: Program, is_bad: Callable[[Program], bool], *, most: int = 300) -> Program:
    """Returns the smallest program that is still bad, among those that `most` trials reach."""
    while most > 0:
        for candidate in smaller_programs(program):
            most -= 1
            if is_bad(candidate) or most <= 0:
                break
        else:
            break
        if most <= 0:
            break
        program = candidate
    return program
