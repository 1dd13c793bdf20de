"""Runs one function on equal arguments three times: compiled, in eager, and in float64.

Takes a function or module with its arguments. Gives the outcome of a run: outputs, gradients, and the arguments,
parameters and buffers as they are afterwards. Refuses nothing; a function that cannot run in float64 raises its own
error.

Arguments are cloned storage by storage, so strides, offsets, overlaps and shared storages stay as the user made them.
In the float64 run every floating dtype that the function names is replaced by float64, otherwise the truth would be
rounded. A cast that allocates new memory in eager allocates new memory there too, since a later write to it must not
reach its operand. The closure of a function is not cloned: all three runs change the same closure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

CASTS = ("to", "type", "type_as", "double", "float", "half", "bfloat16")


@dataclass(frozen=True, slots=True)
class OwnedCall:
    """A function and arguments that belong to one run."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def modules(self) -> dict[str, nn.Module]:
        """Returns the function, if it is a module, and all modules among the arguments, by path."""
        from torch import nn
        from torch.utils import _pytree as pytree

        found = {"": self.fn} if isinstance(self.fn, nn.Module) else {}
        leaves, _ = pytree.tree_flatten_with_path((self.args, self.kwargs))
        found |= {pytree.keystr(path): leaf for path, leaf in leaves if isinstance(leaf, nn.Module)}
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Returns every tensor argument, parameter and buffer by name."""
        import torch
        from torch.utils import _pytree as pytree

        found: dict[str, Tensor] = {}
        for kind, values in (("args", self.args), ("kwargs", self.kwargs)):
            leaves, _ = pytree.tree_flatten_with_path(values)
            found |= {kind + pytree.keystr(path): leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}
        for path, module in self.modules().items():
            named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            found |= {f"{path}.{name}".lstrip("."): tensor for name, tensor in named.items()}
        return found


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of one run.

    Attributes:
        out: What the function returned.
        grads: The gradient of each leaf that requires one, by name; None if it has none.
        state: Every tensor argument, parameter and buffer as it is afterwards, by name.
        aliases: (output, name) for each output that shares its storage with an argument or with an earlier output.
    """

    out: Any
    grads: Mapping[str, Tensor | None]
    state: Mapping[str, Tensor]
    aliases: tuple[tuple[int, str], ...]


def copy_call(program: OwnedCall, *, exact: bool) -> OwnedCall:
    """Returns a call with storages of its own, in float64 if `exact`."""
    import torch
    from torch import nn
    from torch.utils import _pytree as pytree

    storages: dict[int, Tensor] = {}

    def clone(leaf: Any) -> Any:
        if isinstance(leaf, nn.Module):
            twin = copy.deepcopy(leaf)
            return twin.double() if exact else twin
        return _clone(leaf, storages, exact=exact) if isinstance(leaf, torch.Tensor) else leaf

    fn = clone(program.fn)
    args, kwargs = pytree.tree_map(clone, (program.args, program.kwargs))
    return OwnedCall(fn, args, kwargs)


def _clone(tensor: Tensor, storages: dict[int, Tensor], *, exact: bool) -> Tensor:
    import torch

    storage, key = tensor.untyped_storage(), _storage_id(tensor)
    dtype = exact_dtype(tensor.dtype) if exact else tensor.dtype
    if key not in storages:
        with torch.no_grad():
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            count = storage.nbytes() // tensor.element_size()
            storages[key] = flat.set_(storage, 0, (count,), (1,)).to(dtype, copy=True)
    twin = torch.empty(0, dtype=dtype, device=tensor.device)
    twin.set_(storages[key].untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    return twin.requires_grad_(tensor.requires_grad)


def _storage_id(tensor: Tensor) -> int:
    """Returns a number that identifies the tensor's storage."""
    storage: Any = tensor.untyped_storage()
    return storage._cdata  # the address of its data may be null


def exact_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns float64 for a floating dtype, complex128 for a complex one, and any other dtype itself."""
    import torch

    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


@contextmanager
def recording_casts(casts: list[bool]) -> Generator[None]:
    """Adds to `casts`, for each cast in the context, whether the cast allocated new memory."""
    from torch.overrides import TorchFunctionMode

    class Recorded(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            if _is_cast(func):
                casts.append(not _is_same_memory(found, args[0]))
            return found

    with Recorded():
        yield


@contextmanager
def computing_in_float64(casts: Sequence[bool] = ()) -> Generator[None]:
    """Replaces, in the context, every floating dtype that a torch function is given by float64.

    Args:
        casts: For each cast of the eager run, whether it allocated new memory; the casts in the context do the same.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils import _pytree as pytree

    widening = {"float", "half", "bfloat16"}
    made = iter(casts)

    class Exact(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name, is_new = getattr(func, "__name__", ""), _is_cast(func) and next(made, False)
            if name in widening and func is getattr(torch.Tensor, name, None):
                func = torch.Tensor.double
            args, kwargs = pytree.tree_map_only(torch.dtype, exact_dtype, (args, kwargs or {}))
            found = func(*args, **kwargs)
            return found.clone() if is_new and _is_same_memory(found, args[0]) else found

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Exact():
            yield
    finally:
        torch.set_default_dtype(before)


def _cast_context(casts: list[bool] | None, *, exact: bool) -> AbstractContextManager[None]:
    if exact:
        return computing_in_float64(casts or ())
    return nullcontext() if casts is None else recording_casts(casts)


def _is_cast(func: Callable[..., Any]) -> bool:
    """Tells whether a function is a method that returns its own tensor if that has the dtype already."""
    import torch

    return any(func is getattr(torch.Tensor, name) for name in CASTS)


def _is_same_memory(found: Any, operand: Tensor) -> bool:
    import torch

    # `tensor.type()` returns a name and no tensor.
    return isinstance(found, torch.Tensor) and _storage_id(found) == _storage_id(operand)


def run_call(
    program: OwnedCall,
    call: Callable[..., Any],
    *,
    grad: bool,
    exact: bool = False,
    below: Callable[[], AbstractContextManager[object]] = nullcontext,
    casts: list[bool] | None = None,
) -> CallOutcome:
    """Calls a function with the same random seed each time, and computes the gradients if asked to.

    Args:
        program: The call whose arguments are used; the run may change them.
        call: The function to call in place of the program's.
        grad: Whether to compute gradients of the outputs, with fixed random cotangents.
        exact: Whether to compute in float64.
        below: Makes a context that changes operators below autograd, those of the gradients too, such as `exact_sums`.
        casts: A list that an eager run fills and an exact run follows.

    Returns:
        The outcome.
    """
    import torch

    random: Any = torch.random  # torch leaves its types open
    tensors = program.tensors()
    for tensor in tensors.values():
        tensor.grad = None  # an earlier run on the same module may have left one
    with random.fork_rng(devices=[]), torch.set_grad_enabled(grad):
        random.manual_seed(0)
        with below(), _cast_context(casts, exact=exact):
            out = call(*program.args, **program.kwargs)
        if grad:
            outputs, cotangents = _cotangents(out)
            with below():
                torch.autograd.backward(outputs, cotangents)
    grads = {name: tensor.grad for name, tensor in tensors.items() if tensor.is_leaf and tensor.requires_grad}
    state = {name: tensor.detach() for name, tensor in tensors.items()}
    return CallOutcome(out, grads, state, _aliases(out, tensors))


def _cotangents(out: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the outputs that have gradients, and a fixed random cotangent for each.

    The cotangents are rounded to bfloat16, so that runs of every precision have equal ones.
    """
    import torch
    from torch.utils import _pytree as pytree

    outputs = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    generator = torch.Generator().manual_seed(1)
    cotangents = [
        torch.randn(leaf.shape, dtype=torch.float32, generator=generator, device="cpu")
        .bfloat16()
        .to(leaf.device, leaf.dtype)
        for leaf in outputs
    ]
    return outputs, cotangents


def _aliases(out: Any, tensors: Mapping[str, Tensor]) -> tuple[tuple[int, str], ...]:
    import torch
    from torch.utils import _pytree as pytree

    owners: dict[int, str] = {}
    for name, tensor in tensors.items():
        owners.setdefault(_storage_id(tensor), name)
    pairs: list[tuple[int, str]] = []
    for number, leaf in enumerate(pytree.tree_leaves(out)):
        if isinstance(leaf, torch.Tensor):
            owner = owners.setdefault(_storage_id(leaf), f"output {number}")
            if owner != f"output {number}":
                pairs.append((number, owner))
    return tuple(pairs)
