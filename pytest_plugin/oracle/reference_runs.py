"""Three runs of one function on equal arguments: compiled, eager, and in float64.

Takes a function or module with its arguments. Gives what each run left behind: outputs, gradients, and the arguments,
parameters and buffers as they are afterwards. Refuses nothing; a function that cannot run in float64 raises there.

Arguments are cloned storage by storage, so strides, offsets, overlaps and common storages are the user's. In the
float64 run every floating dtype that the function itself names is float64 too, otherwise the truth would be rounded.
A cast that gives new memory in eager gives new memory there as well: what is written to it later must reach no other.
A function's own closure is not cloned: what it changes there, all three runs change.
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
    """A function and its arguments, owned by one run."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def modules(self) -> dict[str, nn.Module]:
        from torch import nn
        from torch.utils import _pytree as pytree

        found = {"": self.fn} if isinstance(self.fn, nn.Module) else {}
        leaves, _ = pytree.tree_flatten_with_path((self.args, self.kwargs))
        found |= {pytree.keystr(path): leaf for path, leaf in leaves if isinstance(leaf, nn.Module)}
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor argument, parameter and buffer by name."""
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
    """What one run left behind."""

    out: Any
    grads: Mapping[str, Tensor | None]
    state: Mapping[str, Tensor]
    aliases: tuple[tuple[int, str], ...]  # (output, input or earlier output of the same storage)


def copy_call(program: OwnedCall, *, exact: bool) -> OwnedCall:
    """The program with storages of its own, in float64 if `exact`."""
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
    storage: Any = tensor.untyped_storage()
    return storage._cdata  # its address may be null


def exact_dtype(dtype: torch.dtype) -> torch.dtype:
    import torch

    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


@contextmanager
def recording_casts(casts: list[bool]) -> Generator[None]:
    """Inside, each cast adds whether it gave new memory."""
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
    """Inside, every floating dtype that torch functions are given is float64; `casts` is what eager recorded."""
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
    """Whether it is a method that gives its tensor back where that has the dtype already."""
    import torch

    return any(func is getattr(torch.Tensor, name) for name in CASTS)


def _is_same_memory(found: Any, operand: Tensor) -> bool:
    import torch

    # `type()` gives a name
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
    """Calls it, from the same random seed each time, and takes the gradients if asked to.

    `below` gives what changes operators below autograd, those of the gradients too, such as `exact_sums`.
    `casts`: a run of eager's fills it, an exact run follows it.
    """
    import torch

    random: Any = torch.random  # torch leaves its types open
    tensors = program.tensors()
    for tensor in tensors.values():
        tensor.grad = None  # of an earlier run on the same module
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
    """The outputs that have gradients, and fixed random ones for them, as bfloat16 so that every run has the same."""
    import torch
    from torch.utils import _pytree as pytree

    outputs = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    generator = torch.Generator().manual_seed(1)
    cotangents = [
        torch.randn(leaf.shape, dtype=torch.float32, generator=generator).bfloat16().to(leaf.device, leaf.dtype)
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
