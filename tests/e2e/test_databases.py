"""PyTorch's own databases of modules, optimizers and operators with graphs, beside that of operators (tests/opinfo)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.hop_db import hop_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

from minductor.driver import Compiler

pytestmark = pytest.mark.long
COUNT = 12  # inputs of a module: a transformer has more than a hundred
OPTIMIZERS: dict[str, Any] = {info.optim_cls.__name__: info for info in optim_db}  # pyright: ignore[reportAttributeAccessIssue]  a class


def assert_as_eager(run: Callable[[Callable[[Any], Any]], Any]) -> None:
    """What `run` gives is the same whether it compiles its function or not."""
    results: list[Any] = []
    for form in (lambda fn: fn, lambda fn: torch.compile(fn, backend=Compiler())):
        torch._dynamo.reset()
        torch.manual_seed(0)
        results.append(run(form))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5, equal_nan=True)


def gradients(outputs: Any, inputs: Any) -> list[Any]:
    """Of all outputs by all inputs that have one."""
    of, by = [
        [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor) and x.requires_grad]
        for tree in (outputs, inputs)
    ]
    return list(torch.autograd.grad(of, by, [torch.ones_like(x) for x in of], allow_unused=True)) if of and by else []


def copied(tree: Any) -> Any:
    def clone(x: Any) -> Any:
        return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x

    return pytree.tree_map(clone, tree)


@pytest.mark.parametrize("is_training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_modules(info: ModuleInfo, is_training: bool) -> None:
    given = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=is_training)
    for how in [each for each in given if each.forward_input is not None][:COUNT]:
        made = info.module_cls(*how.constructor_input.args, **how.constructor_input.kwargs).train(is_training)

        def run(form: Callable[[Any], Any], made: torch.nn.Module = made, how: Any = how) -> Any:
            module = copy.deepcopy(made)
            args, kwargs = copied((how.forward_input.args, how.forward_input.kwargs))
            outputs = form(module)(*args, **kwargs)
            return outputs, gradients(outputs, (args, kwargs, list(module.parameters()))), list(module.buffers())

        assert_as_eager(run)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in ("Muon", "SparseAdam")])
def test_optimizers(name: str) -> None:
    """Muon iterates in bfloat16, and SparseAdam takes sparse gradients."""
    info = OPTIMIZERS[name]
    for how in info.optim_inputs_func(device="cpu"):

        def run(form: Callable[[Any], Any], options: Any = how.kwargs) -> Any:
            parameters = [torch.randn(size).requires_grad_() for size in ((5, 4), (4,), (), (2, 3, 2))]
            optimizer: Any = info.optim_cls(parameters, **copy.deepcopy(options))

            def loss() -> torch.Tensor:
                optimizer.zero_grad()
                total = torch.stack([(x.sin() ** 2).sum() for x in parameters]).sum()
                total.backward()
                return total

            step = form(optimizer.step)
            for _ in range(3):
                loss()
                step(*((loss,) if info.step_requires_closure else ()))
            return parameters, [optimizer.state[x] for x in parameters]

        assert_as_eager(run)


@pytest.mark.parametrize("info", [i for i in hop_db if torch.float32 in i.dtypes], ids=lambda info: info.name)
def test_operators_with_graphs(info: OpInfo) -> None:
    for sample in info.sample_inputs("cpu", torch.float32, requires_grad=True):

        def run(form: Callable[[Any], Any], sample: Any = sample) -> Any:
            args, kwargs = copied(((sample.input, *sample.args), sample.kwargs))
            outputs = form(info.op)(*args, **kwargs)
            return outputs, gradients(outputs, args)

        assert_as_eager(run)
