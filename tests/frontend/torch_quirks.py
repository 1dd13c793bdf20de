"""What torch does that minductor has to know: one function for each row of `frontend/quirks/known_quirks.py`.

Each function has the name of its row, and returns whether the installed torch still does what the row says. Nothing
here uses minductor, so that a function can be run with any torch: `python tests/frontend/torch_quirks.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch._functorch import compile_utils
from torch._functorch.aot_autograd import aot_function, aot_module_simplified
from torch._functorch.partitioners import get_default_op_list, min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

aten = torch.ops.aten
TURNED = torch.ones(2, 3).t()  # of size (3, 2) with strides (1, 3)


# --- what the functions below are written with ---------------------------------------------------------------------


def _fake(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator's result on fake tensors."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def fake(x: Any) -> Any:
            if isinstance(x, list):
                return [fake(item) for item in x]
            return mode.from_tensor(x) if isinstance(x, torch.Tensor) else x

        return op(*map(fake, args), **kwargs)


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def _has_other_strides(op: Any, *args: Any) -> bool:
    """Whether fake tensors give the operator's result other strides than eager does."""
    return _first(_fake(op, *args)).stride() != _first(op(*args)).stride()


def _raises(function: Callable[..., Any], *args: Any) -> bool:
    try:
        function(*args)
    except Exception:
        return True
    return False


def _is_refused_by_eager_only(op: Any, *args: Any) -> bool:
    return _raises(op, *args) and not _raises(_fake, op, *args)


def _compiled(function: Callable[..., Any], *, is_decomposed: bool = False) -> Callable[..., Any]:
    """The function as AOTAutograd traces it, run in eager; `is_decomposed`: by torch's formulas too."""
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager_decomp_partition" if is_decomposed else "aot_eager")


def _add_and_double(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return b * 2


def _windows(first: int, second: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two windows of four elements on one memory."""
    x = torch.arange(12.0)
    return x[first : first + 4], x[second : second + 4]


def _is_wrong(
    function: Callable[..., torch.Tensor],
    traced_with: Callable[[], Sequence[torch.Tensor]],
    called_with: Callable[[], Sequence[torch.Tensor]],
) -> bool:
    """Whether what AOTAutograd traced with the one arguments gives another result than eager for the others."""
    compiled = _compiled(function)
    compiled(*traced_with())
    return not torch.equal(compiled(*called_with()), function(*called_with()))


def _backend(compiler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A backend of torch.compile, whose compiler is given the graphs of AOTAutograd."""

    def backend(gm: Any, inputs: Any) -> Any:
        more: dict[str, Any] = {"partition_fn": min_cut_rematerialization_partition}
        return aot_module_simplified(gm, inputs, fw_compiler=compiler, bw_compiler=compiler, **more)

    torch._dynamo.reset()
    return backend


# --- functions that are traced otherwise than they run --------------------------------------------------------------


def dropout_is_copied() -> bool:
    x = torch.ones(3)
    return _compiled(lambda x: F.dropout(x, training=False))(x) is not x


def resized_bytes_are_rounded_once() -> bool:
    x = torch.arange(210).mul(37).remainder(256).reshape(2, 3, 5, 7).to(torch.uint8)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2, mode="bilinear")

    return not torch.equal(_compiled(fn)(x), fn(x))


def encoder_layers_forget_autocast() -> bool:
    layer, x = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval(), torch.ones(2, 3, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return _compiled(layer)(x).dtype != layer(x).dtype


def soft_margin_loss_is_promoted() -> bool:
    traced = _compiled(F.soft_margin_loss, is_decomposed=True)(torch.ones(3), torch.ones(3, dtype=torch.float64))
    return traced.dtype == torch.float64


def multi_margin_loss_keeps_a_dimension() -> bool:
    traced = _compiled(lambda x, label: F.multi_margin_loss(x, label, reduction="none"))
    return traced(torch.ones(5), torch.tensor(2)).dim() == 1


def multi_margin_loss_has_a_gradient_at_zero() -> bool:
    x = torch.ones(1, 5, requires_grad=True)
    loss = _compiled(lambda x, labels: F.multi_margin_loss(x, labels, margin=0.0))(x, torch.tensor([2]))
    return bool(torch.autograd.grad(loss, x)[0].any())


def multilabel_margin_loss_counts_padding() -> bool:
    x, labels = torch.arange(4.0)[None], torch.tensor([[2, -1, 0, 1]])
    return _compiled(F.multilabel_margin_loss)(x, labels).item() != F.multilabel_margin_loss(x, labels).item()


# --- strides ---------------------------------------------------------------------------------------------------------


def strides_of_pointwise_results() -> bool:
    return _has_other_strides(aten.relu.default, torch.ones(8).as_strided((2, 1), (1, 2)))


def strides_of_pairs() -> bool:
    return _has_other_strides(aten.copysign.Tensor, TURNED, torch.ones(2))


def strides_like_the_first_argument() -> bool:
    return _has_other_strides(aten.nan_to_num.default, torch.ones(8).as_strided((3, 1), (1, 7)))


def strides_of_row_major_results() -> bool:
    return _has_other_strides(aten.pow.Scalar, 2, TURNED)


def strides_by_memory_format() -> bool:
    x = torch.ones(2, 3, 4, 5).permute(3, 2, 1, 0)
    return _has_other_strides(aten._native_batch_norm_legit.no_stats, x, None, None, True, 0.1, 1e-5)


def strides_of_indexed_tensors() -> bool:
    x = torch.ones(99).as_strided((3, 1, 2, 3), (1, 9, 3, 9))
    return _has_other_strides(aten.index.Tensor, x, [None, None, torch.zeros(1, 2, dtype=torch.int64)])


def strides_of_rolled_tensors() -> bool:
    return _has_other_strides(aten.roll.default, torch.ones(12).as_strided((2, 1, 2, 3), (6, 1, 3, 1)), [-3], [2])


def strides_of_gated_halves() -> bool:
    return _has_other_strides(aten.glu.default, torch.ones(24).as_strided((2, 1, 1, 2), (4, 1, 12, 1)), 0)


def strides_of_views() -> bool:
    return _has_other_strides(aten.view.default, torch.ones(2).as_strided((1, 2), (1, 1)), [1, 2])


def sizes_of_views() -> bool:
    graph = make_fx(lambda x: x.view(-1, 8).sin(), tracing_mode="symbolic")(torch.ones(4, 64)).graph
    (shape,) = [node.meta["val"].shape for node in graph.nodes if node.target is aten.sin.default]
    return shape[-1].node.expr != 8


def strides_of_transforms() -> bool:
    return _has_other_strides(aten._fft_c2c.default, torch.ones(4, 5, 6, dtype=torch.complex64), [2, 0], 0, True)


def strides_of_log_sigmoid() -> bool:
    return _has_other_strides(aten.log_sigmoid_forward.default, TURNED)


def strides_of_padding_that_cuts() -> bool:
    args, op = (torch.ones(5, 6, 7).permute(1, 2, 0), [-1, 0]), aten.constant_pad_nd.default
    return _fake(torch._decomp.decomposition_table[op], *args).stride() != op(*args).stride()


def scatters_keep_zero_strides() -> bool:
    x = torch.ones(2, 1).expand(2, 6)
    return 0 in _fake(aten.slice_scatter.default, x, x[:1], 0, 0, 1).stride()


# --- what else fake tensors have otherwise ---------------------------------------------------------------------------


def norms_keep_a_negative_dimension() -> bool:
    return _fake(aten.linalg_vector_norm.default, torch.ones(3, 1), 2, [-1]).dim() == 2


def unique_has_one_element() -> bool:
    with suppress(DynamicOutputShapeException):
        return _fake(aten._unique.default, torch.tensor([1, 2, 3]))[0].numel() == 1
    return False


def bfloat16_bags_have_places() -> bool:
    args = torch.ones(4, 6, dtype=torch.bfloat16), torch.tensor([1, 3]), torch.tensor([0])
    return _fake(aten._embedding_bag.default, *args)[1].numel() != aten._embedding_bag.default(*args)[1].numel()


def view_copy_is_refused() -> bool:
    return _raises(torch._decomp.get_decompositions([aten.view_copy])[aten.view_copy.default], TURNED, (2, 3))


def norm_statistics_are_narrow() -> bool:
    x, weight = torch.ones(3, 4, dtype=torch.bfloat16), torch.ones(4)
    args = aten.native_layer_norm.default, x, [4], weight, weight, 1e-5
    return _fake(*args)[1].dtype == torch.bfloat16


def integers_are_not_refused() -> bool:
    return _is_refused_by_eager_only(aten._softmax.default, torch.ones(3, dtype=torch.int64), 0, False)


def kinds_are_not_refused() -> bool:
    return _is_refused_by_eager_only(aten.bitwise_and.Tensor, torch.ones(2), torch.ones(2))


def dimensions_are_not_refused() -> bool:
    return _is_refused_by_eager_only(aten.sort.default, torch.ones(2, 3), 5)


def probabilities_are_not_checked() -> bool:
    args = torch.full((2,), 2.0), torch.ones(2)
    compiled = _compiled(F.binary_cross_entropy, is_decomposed=True)
    return _raises(F.binary_cross_entropy, *args) and not _raises(compiled, *args)


def window_writes_copy_no_gaps() -> bool:
    args = torch.ones(4, 4)[:, :2], torch.zeros(2)
    sizes = [
        op.untyped_storage().nbytes() for op in (aten.diagonal_scatter(*args), _fake(aten.diagonal_scatter, *args))
    ]
    return sizes[0] != sizes[1]


def loss_gradients_divide_by_a_float_of_the_graph() -> bool:
    formulas = torch._decomp.get_decompositions([aten.mse_loss_backward])
    args = torch.ones(()), torch.ones(3), torch.ones(3)
    call = make_fx(lambda *x: aten.mse_loss_backward(*x, 1), decomposition_table=formulas, tracing_mode="symbolic")
    return any("truediv" in str(node.target) for node in call(*args).graph.nodes)


def flash_attention_counts_as_random() -> bool:
    return torch.Tag.nondeterministic_seeded in aten._scaled_dot_product_flash_attention_for_cpu.default.tags


def written_views_have_no_dtype() -> bool:
    library = torch.library.Library("torch_quirks", "FRAGMENT")
    library.define("write(Tensor(a!) x) -> ()")
    for key in ("CPU", "Meta"):
        library.impl("write", lambda x: None, key)

    def write_parts(z: torch.Tensor) -> torch.Tensor:
        z = z.clone()
        torch.ops.torch_quirks.write(torch.view_as_real(z))
        return z

    with suppress(RuntimeError):
        try:
            aot_function(write_parts, fw_compiler=lambda gm, _: gm)(torch.ones(2, dtype=torch.complex64))
            return False
        finally:
            library._destroy()
    return True


# --- AOTAutograd: memory that inputs share ---------------------------------------------------------------------------


def inputs_traced_apart_are_not_guarded() -> bool:
    return _is_wrong(_add_and_double, lambda: (torch.zeros(4), torch.zeros(4)), lambda: _windows(0, 2))


def overlapping_inputs_are_not_guarded() -> bool:
    return _is_wrong(_add_and_double, lambda: _windows(0, 2), lambda: _windows(0, 3))


def overlapping_matrices_are_missed() -> bool:
    def matrices() -> Sequence[torch.Tensor]:
        x = torch.zeros(4, 4)
        return x[:2, :3], x[1:3, 1:]

    return _is_wrong(_add_and_double, matrices, matrices)


def offsets_of_inputs_are_not_guarded() -> bool:
    graphs: list[Any] = []
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.as_strided((2,), (1,), 1) * 1, backend=lambda gm, _: graphs.append(gm) or gm)
    for x in _windows(0, 4):
        compiled(x)
    return len(graphs) == 1


def written_inputs_are_copied_without_gaps() -> bool:
    def window(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x.as_strided((3,), (1,), 0) + 0

    def every_second() -> Sequence[torch.Tensor]:
        return (torch.arange(8.0)[::2],)

    return _is_wrong(window, every_second, every_second)


def writes_to_expanded_inputs_are_refused() -> bool:
    def write(x: torch.Tensor) -> torch.Tensor:
        x[:, :1].add_(1)
        return x * 1

    args = torch.zeros(2, 1).expand(2, 3)
    return _raises(_compiled(write), args) and not _raises(write, args)


def donated_inputs_share_memory() -> bool:
    shared: list[bool] = []

    def compiler(gm: Any, inputs: Any) -> Any:
        context = TracingContext.try_get()
        donated = getattr(context.fw_metadata, "bw_donated_idxs", None) if context else None
        values = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
        memory = [v.untyped_storage()._cdata if isinstance(v, torch.Tensor) else None for v in values]
        shared.extend(memory.count(memory[n]) > 1 for n in donated or ())
        return gm

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return (y.exp() * w).sum() + (y.t().cos() @ w).sum()

    x, w = torch.ones(3, 3, requires_grad=True), torch.ones(3, 3, requires_grad=True)
    more: dict[str, Any] = {"fw_compiler": lambda gm, _: gm, "bw_compiler": compiler}
    torch._dynamo.reset()
    torch.compile(function, backend=lambda gm, inputs: aot_module_simplified(gm, inputs, **more))(x, w).backward()
    return any(shared)


# --- AOTAutograd: the partitioner ------------------------------------------------------------------------------------


def detach_is_kept_for_the_backward() -> bool:
    known = get_default_op_list()
    return aten.detach not in known.view_ops | known.recomputable_ops


def merging_equal_nodes_imports_inductor() -> bool:
    return "torch._inductor" in inspect.getsource(compile_utils.fx_graph_cse)


def random_calls_have_no_value() -> bool:
    nodes: list[Any] = []

    def function(x: torch.Tensor) -> Any:
        return checkpoint(lambda x: F.dropout(x.sin(), 0.5).cos(), x, use_reentrant=False)

    def compiler(gm: Any, inputs: Any) -> Any:
        nodes.extend(gm.graph.nodes)
        return gm

    torch.compile(function, backend=_backend(compiler))(torch.ones(3, requires_grad=True))
    return any("rng_state" in str(node.target) and "val" not in node.meta for node in nodes)


# --- Dynamo and export -----------------------------------------------------------------------------------------------


class _Boxed:
    __slots__ = ()
    _boxed_call = True

    def __call__(self, args: Any) -> Any:
        return args


def disabled_callables_lose_attributes() -> bool:
    return not hasattr(torch._dynamo.disable(_Boxed()), "_boxed_call")


def zero_tensors_become_plain_fakes() -> bool:
    return not FakeTensorMode().from_tensor(torch._efficientzerotensor(3))._is_zerotensor()


def operators_of_a_name_replace_each_other() -> bool:
    class Operator(torch._ops.HigherOrderOperator):
        def __init__(self) -> None:
            super().__init__("torch_quirks_operator")

        def __call__(self, *args: Any) -> Any:
            return super().__call__(*args)

    Operator()
    return Operator() is torch._ops._higher_order_ops["torch_quirks_operator"]


class _Difference(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - b


def export_orders_keywords_by_the_call() -> bool:
    program = torch.export.export(_Difference(), (), {"b": torch.ones(2), "a": torch.ones(2)})
    return [spec.arg.name for spec in program.graph_signature.input_specs] == ["b", "a"]


def export_refuses_operators() -> bool:
    module = torch.nn.Module()
    module.forward = torch.sin
    return _raises(torch.export.export, module, (torch.ones(2),))


class _Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(3))
        self.register_buffer("b", self.a)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a.add_(1)
        return x + self.b


def export_refuses_tied_buffers() -> bool:
    return _raises(torch.export.export(_Tied(), (torch.ones(3),)).run_decompositions)


# --- what differs between versions -----------------------------------------------------------------------------------


def clamp_ignores_a_bound_that_is_nan() -> bool:
    return not torch.zeros(()).clamp(max=float("nan")).isnan().item()


def float8_saturates() -> bool:
    return not torch.full((), 1e4).to(torch.float8_e4m3fn).float().isnan().item()


def no_operator_says_that_it_only_writes() -> bool:
    return not hasattr(torch.Tag, "out")


class _Refusal(TypeError):
    def __init__(self, name: str, *, why: str) -> None:
        super().__init__(f"{name}: {why}")


def exceptions_with_keywords_end_dynamo() -> bool:
    def refuse(x: torch.Tensor, number: object) -> torch.Tensor:
        row = (number,) if isinstance(number, torch.Tensor) else number
        if not isinstance(row, tuple):
            raise _Refusal("number", why="it is no tensor")
        return x + 1

    try:
        _compiled(refuse)(torch.ones(2), 3)
    except Exception as error:
        return not isinstance(error, _Refusal)
    return False


if __name__ == "__main__":
    for name, function in list(globals().items()):
        if inspect.isfunction(function) and function.__module__ == "__main__" and not name.startswith("_"):
            try:
                print(f"torch {torch.__version__} {name}: {function()}")
            except Exception as error:
                print(f"torch {torch.__version__} {name}: {type(error).__name__} {str(error)[:150]!r}")
