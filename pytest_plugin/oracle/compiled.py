"""`compiled(fn, *args)`: compile, run, compare with eager and with float64, collect.

Takes a function or module and its arguments, which stay as they are. Gives a Run. Refuses, by AssertionError, results,
gradients, arguments, parameters, buffers or aliases that are not eager's within the tolerance of `closer`.
On a compile-only device the function runs in eager, so there is nothing to compare; what does not compile is an error.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pytest_plugin.adapters import Adapter, Graph
from pytest_plugin.devices.devices import Device
from pytest_plugin.oracle import oracle
from pytest_plugin.oracle.closer import DEFAULT, Difference, Policy, closer
from pytest_plugin.oracle.repro import Call
from pytest_plugin.oracle.run import Results, Run

CPU = Device("cpu")


@dataclass(frozen=True, slots=True, repr=False)
class Compile:
    """The value of the fixture `compiled`."""

    adapter: Adapter
    folder: Callable[[], Path]  # where the next store lies
    tell: Callable[[Run], None]
    device: Device = CPU
    always: Mapping[str, object] = field(default_factory=dict[str, object])  # options besides those of the call
    # takes a wrong result, so that other checks see the run too; its numbers are then asked for in vain
    forgive: Callable[[Difference], None] | None = None
    policy: Policy = DEFAULT
    begins: Callable[[Call], None] | None = None  # told of each call before it compiles

    def __call__(
        self,
        fn: Callable[..., Any],
        *args: Any,
        options: Mapping[str, object] | None = None,
        dynamic: bool | None = None,
        grad: bool | None = None,
        policy: Policy | None = None,
        **kwargs: Any,
    ) -> Run:
        """Compiles `fn` in a fresh store and runs it on clones of the arguments.

        grad: True takes gradients of every floating argument and parameter, False none; unset, they are taken if an
        argument requires them.
        """
        __tracebackhide__ = True
        import torch

        chosen = {**self.always, **(options or {})}
        if self.begins is not None:
            self.begins(Call(fn, args, kwargs, chosen, dynamic))
        torch.compiler.reset()
        program = oracle.Program(fn, args, kwargs)
        subject = oracle.copied(program, exact=False).fn
        session = self.adapter.session(self.folder(), self.device)
        session.nonce = nonce = secrets.token_hex(8)
        function = session.compile(subject, chosen, dynamic)
        capture = partial(captured, session.capture, nonce)
        if self.device.kind == "compile":
            again = partial(_traced, subject, function, grad)
            results, out = None, again(*args, **kwargs)
            capture()  # waits for what does not compile
        else:
            checked = partial(check, fn, subject, function, policy or self.policy, str(self.device))
            again = partial(_again, checked, grad)
            results, out = self._judged(partial(checked, grad, args, kwargs))
        sizes = {"inputs": _bytes((args, kwargs)), "output": _bytes(out)}
        run = Run(results, again, capture, sizes)
        self.tell(run)
        return run

    def _judged(self, checked: Callable[[], Results]) -> tuple[Results | None, Any]:
        __tracebackhide__ = True
        try:
            results = checked()
        except Difference as difference:
            if self.forgive is None:
                raise
            self.forgive(difference)
            return None, None
        return results, results.out


class Foreign(RuntimeError):
    """A captured graph is not of this run."""


def captured(capture: Callable[[], Sequence[Graph]], nonce: str) -> Sequence[Graph]:
    """What an adapter captured, if all of it is of the run with that nonce."""
    graphs = capture()
    if any(graph.nonce != nonce for graph in graphs):
        raise Foreign("the adapter captured a graph of another run: graphs carry the `nonce` of their session")
    return graphs


def _bytes(values: Any) -> int:
    """Of the storages of all tensors, each once."""
    import torch
    from torch.utils import _pytree as pytree

    tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    storages: list[Any] = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def _again(checked: Callable[..., Results], grad: bool | None, *args: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    return checked(grad, args, kwargs).out


@contextmanager
def allocator_peak(device: str) -> Generator[Callable[[], int | None]]:
    """What a GPU's allocator held at most inside, beyond what it held before; None elsewhere."""
    import torch

    if device != "cuda":
        yield lambda: None
        return
    tools: Any = torch.cuda
    tools.synchronize()
    tools.reset_peak_memory_stats()
    before = tools.memory_allocated()
    yield lambda: tools.max_memory_allocated() - before


def _traced(
    subject: Callable[..., Any], function: Callable[..., Any], grad: bool | None, *args: Any, **kwargs: Any
) -> Any:
    """Runs it forward, and backward if gradients are wanted; nobody judges what comes out."""
    start = oracle.Program(subject, args, kwargs)
    wanted = needs_grad(start) if grad is None else grad
    if wanted:
        start = requiring(start)
    own = oracle.copied(oracle.Program(len, start.args, start.kwargs), exact=False)
    return oracle.run(replace(own, fn=subject), function, grad=wanted).out


def check(
    fn: Callable[..., Any],
    subject: Callable[..., Any],
    function: Callable[..., Any],
    policy: Policy,
    device: str,
    grad: bool | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Results:
    """Runs all three and compares them."""
    __tracebackhide__ = True
    # `subject` is the module that the compiled function owns: eager must start from the same parameters and buffers
    start = oracle.Program(subject, args, kwargs)
    wanted = needs_grad(start) if grad is None else grad
    if wanted:
        start = requiring(start)
    eager, exact = oracle.copied(start, exact=False), oracle.copied(start, exact=True)
    own = replace(oracle.copied(oracle.Program(len, start.args, start.kwargs), exact=False), fn=subject)
    with allocator_peak(device) as peak:
        first = oracle.run(own, function, grad=wanted)
        allocated = peak()
    casts: list[bool] = []
    outcomes = (
        first,
        oracle.run(eager, eager.fn, grad=wanted, casts=casts),
        oracle.run(exact, exact.fn, grad=wanted, exact=True, casts=casts),
    )
    found, plain, _ = outcomes
    numerics = closer(*(o.out for o in outcomes), policy=policy, what="output")
    for kind in ("grads", "state"):
        what = "gradient" if kind == "grads" else "afterwards"
        # gradients of leaves are laid out as autograd likes, not as the graph returns them
        looser = replace(policy, layout=False) if kind == "grads" else policy
        sides = [dict(getattr(outcome, kind)) for outcome in outcomes]
        if sides[0].keys() != sides[1].keys():
            raise Difference(f"{what}: {', '.join(sides[0])} have one, in eager {', '.join(sides[1])}")
        numerics = max(numerics, closer(*sides, policy=looser, what=what))
    if found.aliases != plain.aliases:
        raise Difference(f"outputs share storage with {list(found.aliases)}, eager's with {list(plain.aliases)}")
    return Results(found.out, found.grads, numerics, allocated)


def needs_grad(program: oracle.Program) -> bool:
    """Whether an argument requires gradients; a module's parameters always do, and say nothing."""
    arguments = oracle.Program(len, program.args, program.kwargs)
    owned = {id(p) for module in arguments.modules().values() for p in module.parameters()}
    return any(tensor.requires_grad and id(tensor) not in owned for tensor in arguments.tensors().values())


def requiring(program: oracle.Program) -> oracle.Program:
    """The program, with gradients on every floating argument if nothing of it requires any."""
    if any(tensor.requires_grad for tensor in program.tensors().values()):
        return program
    twin = oracle.copied(replace(program, fn=len), exact=False)
    for tensor in twin.tensors().values():
        tensor.requires_grad_(tensor.is_floating_point() or tensor.is_complex())
    return replace(twin, fn=program.fn)
