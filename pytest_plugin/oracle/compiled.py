"""The value of the fixture `compiled`: compiles a function, runs it, and compares it with eager and with float64.

Takes a function or module and its arguments, which are not changed. Gives a Run. Refuses, by WrongResult, results,
gradients, arguments, parameters, buffers or aliases that differ from eager by more than `check_accuracy` allows. On a
compile-only device the function runs in eager, so nothing is compared; what does not compile is an error.
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
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.oracle import reference_runs
from pytest_plugin.oracle.accuracy import DEFAULT_POLICY, Policy, WrongResult, check_accuracy
from pytest_plugin.oracle.repro_script import CompiledCall
from pytest_plugin.oracle.run import Results, Run

CPU = Device("cpu")


@dataclass(frozen=True, slots=True, repr=False)
class Compile:
    """The value of the fixture `compiled`.

    Attributes:
        adapter: The compiler under test.
        folder: Returns the folder of the next store.
        on_run: Is called with each Run that the oracle has accepted.
        device: The device that is compiled for.
        extra_options: Options of the compiler besides those of the call.
        on_wrong_result: If given, is called with a wrong result in place of raising it, so that other checks see the
            run.
        policy: The tolerances.
        on_call: If given, is called before each compilation.
        is_each_variant: Whether each call is repeated for each variant of its kernels.
    """

    adapter: Adapter
    folder: Callable[[], Path]
    on_run: Callable[[Run], None]
    device: Device = CPU
    extra_options: Mapping[str, object] = field(default_factory=dict[str, object])
    on_wrong_result: Callable[[WrongResult], None] | None = None
    policy: Policy = DEFAULT_POLICY
    on_call: Callable[[CompiledCall], None] | None = None
    is_each_variant: bool = False

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
        """Compiles a function in a fresh store, runs it, and compares it with eager and with float64.

        The user's function is run three times: compiled, in eager and in float64, each on clones of the arguments. On a
        compile-only device it is run once, and nothing is compared.

        Args:
            fn: A function or a module. Its closure is not cloned: what it changes there, each run changes.
            *args: Its positional arguments, of any nesting; tensors of any dtype, shape and stride.
            options: Options of the compiler, as torch.compile takes them.
            dynamic: Whether sizes are symbolic, as torch.compile takes it.
            grad: True takes gradients of every floating argument and parameter, False of none. None takes them if an
                argument requires them.
            policy: Tolerances in place of those of the run.
            **kwargs: The function's keyword arguments.

        Returns:
            The Run: results, texts, counts and events.

        Raises:
            WrongResult: A result, a gradient, an argument afterwards, a dtype, a stride or an alias is not that of
                eager.
            ForeignGraph: The adapter returned a graph that was not compiled by this call.
        """
        __tracebackhide__ = True
        import torch

        chosen = {**self.extra_options, **(options or {})}
        if self.on_call is not None:
            self.on_call(CompiledCall(fn, args, kwargs, chosen, dynamic, grad))
        torch.compiler.reset()
        program = reference_runs.OwnedCall(fn, args, kwargs)
        subject = reference_runs.copy_call(program, exact=False).fn
        session = self.adapter.session(self.folder(), self.device)
        session.nonce = nonce = secrets.token_hex(8)
        function = session.compile(subject, chosen, dynamic)
        capture = partial(checked_capture, session.capture, nonce)
        if self.device.kind == "compile":
            again = partial(_run_unchecked, subject, function, grad)
            results, out = None, again(*args, **kwargs)
            capture()  # raises what does not compile
        else:
            checked = partial(check_run, fn, subject, function, policy or self.policy, str(self.device))
            again = partial(_run_again, checked, grad)
            results, out = self._compare(partial(checked, grad, args, kwargs))
        sizes = {"inputs": _storage_bytes((args, kwargs)), "output": _storage_bytes(out)}
        run = Run(results, again, capture, sizes, lambda: getattr(session, "measured", 0))
        self.on_run(run)
        if self.is_each_variant:
            self._run_variants(run, fn, args, kwargs, {"dynamic": dynamic, "grad": grad, "policy": policy}, chosen)
        return run

    def _run_variants(
        self,
        run: Run,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        settings: Mapping[str, Any],
        chosen: Mapping[str, object],
    ) -> None:
        """Repeats a call once for each variant of its kernels. All must be eager's; what the test declares is not
        checked of them.

        Raises:
            WrongResult: A variant gives another result, which its name says.
        """
        __tracebackhide__ = True
        names = dict.fromkeys(name for graph in run.graphs for name in graph.variants)
        if not names and getattr(self.adapter, "has_variants", False):
            raise NoVariants("each_variant: no kernel of this call can be computed in another way")
        alone = replace(self, is_each_variant=False, on_run=_ignore, on_wrong_result=None)
        for name in names:
            try:
                alone(fn, *args, options={**chosen, "variant": name}, **settings, **kwargs)
            except WrongResult as error:
                raise WrongResult(f"variant {name}: {error}") from error

    def _compare(self, checked: Callable[[], Results]) -> tuple[Results | None, Any]:
        """Returns the results and the output; without results if a wrong one was reported and not raised."""
        __tracebackhide__ = True
        try:
            results = checked()
        except WrongResult as difference:
            if self.on_wrong_result is None:
                raise
            self.on_wrong_result(difference)
            return None, None
        return results, results.out


def _ignore(run: Run) -> None:
    del run


class NoVariants(AssertionError):
    """A test asks for each variant, and there is only one."""


class ForeignGraph(RuntimeError):
    """An adapter returned a graph that was compiled for another run."""


def checked_capture(capture: Callable[[], Sequence[Graph]], nonce: str) -> Sequence[Graph]:
    """Returns the graphs that an adapter captured, and raises ForeignGraph if one lacks the nonce of this run."""
    graphs = capture()
    if any(graph.nonce != nonce for graph in graphs):
        raise ForeignGraph("the adapter captured a graph of another run: graphs carry the `nonce` of their session")
    return graphs


def _storage_bytes(values: Any) -> int:
    """Returns the bytes of the storages of all tensors in nested values; a shared storage counts once."""
    import torch
    from torch.utils import _pytree as pytree

    tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    storages: list[Any] = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def _run_again(checked: Callable[..., Results], grad: bool | None, *args: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    return checked(grad, args, kwargs).out


@contextmanager
def allocator_peak(device: str) -> Generator[Callable[[], int | None]]:
    """Measures the most bytes that a GPU's allocator held inside the context, beyond those before; None elsewhere."""
    import torch

    if device != "cuda":
        yield lambda: None
        return
    tools: Any = torch.cuda
    tools.synchronize()
    tools.reset_peak_memory_stats()
    before = tools.memory_allocated()
    yield lambda: tools.max_memory_allocated() - before


def _run_unchecked(
    subject: Callable[..., Any], function: Callable[..., Any], grad: bool | None, *args: Any, **kwargs: Any
) -> Any:
    """Runs a function forward, and backward if gradients are wanted, and returns its output without comparing it."""
    start = reference_runs.OwnedCall(subject, args, kwargs)
    wanted = needs_grad(start) if grad is None else grad
    if wanted:
        start = with_required_grads(start)
    own = reference_runs.copy_call(reference_runs.OwnedCall(len, start.args, start.kwargs), exact=False)
    return reference_runs.run_call(replace(own, fn=subject), function, grad=wanted).out


def check_run(
    fn: Callable[..., Any],
    subject: Callable[..., Any],
    function: Callable[..., Any],
    policy: Policy,
    device: str,
    grad: bool | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Results:
    """Runs the function compiled, in eager and in float64, compares the three, and returns the results."""
    __tracebackhide__ = True
    # `subject` is the compiled function's own copy of a module. Eager must start from its parameters and buffers.
    start = reference_runs.OwnedCall(subject, args, kwargs)
    wanted = needs_grad(start) if grad is None else grad
    if wanted:
        start = with_required_grads(start)
    eager, exact = reference_runs.copy_call(start, exact=False), reference_runs.copy_call(start, exact=True)
    own = replace(
        reference_runs.copy_call(reference_runs.OwnedCall(len, start.args, start.kwargs), exact=False), fn=subject
    )
    with allocator_peak(device) as peak:
        first = reference_runs.run_call(own, function, grad=wanted)
        allocated = peak()
    casts: list[bool] = []
    outcomes = (
        first,
        reference_runs.run_call(eager, eager.fn, grad=wanted, casts=casts),
        reference_runs.run_call(exact, exact.fn, grad=wanted, exact=True, casts=casts),
    )
    found, plain, _ = outcomes
    numerics = check_accuracy(*(o.out for o in outcomes), policy=policy, what="output")
    for kind in ("grads", "state"):
        what = "gradient" if kind == "grads" else "afterwards"
        # Autograd chooses the strides of a leaf's gradient, not the compiled graph.
        looser = replace(policy, layout=False) if kind == "grads" else policy
        sides = [dict(getattr(outcome, kind)) for outcome in outcomes]
        if sides[0].keys() != sides[1].keys():
            raise WrongResult(f"{what}: present for {', '.join(sides[0])}; in eager for {', '.join(sides[1])}")
        numerics = max(numerics, check_accuracy(*sides, policy=looser, what=what))
    if found.aliases != plain.aliases:
        raise WrongResult(f"outputs share storage with {list(found.aliases)}; in eager with {list(plain.aliases)}")
    return Results(found.out, found.grads, numerics, allocated)


def needs_grad(program: reference_runs.OwnedCall) -> bool:
    """Tells whether an argument requires gradients. Parameters of modules do not count: nearly all require them."""
    arguments = reference_runs.OwnedCall(len, program.args, program.kwargs)
    owned = {id(p) for module in arguments.modules().values() for p in module.parameters()}
    return any(tensor.requires_grad and id(tensor) not in owned for tensor in arguments.tensors().values())


def with_required_grads(program: reference_runs.OwnedCall) -> reference_runs.OwnedCall:
    """Returns the call, with gradients required on every floating argument if no tensor of the call requires them."""
    if any(tensor.requires_grad for tensor in program.tensors().values()):
        return program
    twin = reference_runs.copy_call(replace(program, fn=len), exact=False)
    for tensor in twin.tensors().values():
        tensor.requires_grad_(tensor.is_floating_point() or tensor.is_complex())
    return replace(twin, fn=program.fn)
