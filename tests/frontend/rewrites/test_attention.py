"""The row `attention`: what it matches in Dynamo's graphs and in torch.export's, and the reasons why it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import fx

from minductor.driver import Compiler
from minductor.driver_tasks.graph_rewrites import apply_level
from minductor.frontend.rewrites.rewrite_row import RewriteNote
from tests.e2e.attention_programs import NEAR_MISSES, PROGRAMS, B, D, H, L, Program, mask_of_queries

SAMPLE = ("llama", "bert", "einsum_length_first", "scale_on_keys", "inverted_mask", "one_matrix")
FUSED = torch.ops.aten.scaled_dot_product_attention.default


class Function(torch.nn.Module):
    """A module that is one function, as torch.export wants it."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def rewrite(gm: fx.GraphModule, **options: Any) -> Sequence[RewriteNote]:
    return apply_level(gm, "torch", Compiler().env(None, options), ()).notes


def of_dynamo(
    fn: Callable[..., Any], args: Sequence[Any], *, dynamic: bool = False, grad: bool = False, **options: Any
) -> tuple[Sequence[RewriteNote], fx.GraphModule, Any]:
    """The notes and the graph after rewrites of Dynamo's graph of a function, and what the graph returns."""
    made: list[Any] = []

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        del inputs
        made.extend((rewrite(gm, **options), gm))
        return gm.forward

    torch.compiler.reset()
    with nullcontext() if grad else torch.no_grad():
        out = torch.compile(fn, backend=backend, dynamic=dynamic)(*args)
    notes, gm = made
    return notes, gm, out


def twice(names: Iterable[str]) -> list[Any]:
    """Each program in the plain form, and some in the other; `make test-all` takes all in both."""
    return [
        pytest.param(name, other, marks=pytest.mark.long if other and name not in SAMPLE else ())
        for name in names
        for other in (False, True)
    ]


def is_fused(gm: fx.GraphModule) -> bool:
    return len(gm.graph.find_nodes(op="call_function", target=FUSED)) == 1


def assert_near(out: torch.Tensor, eager: torch.Tensor) -> None:
    torch.testing.assert_close(out, eager, equal_nan=True, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("name", "dynamic"), twice(PROGRAMS))
def test_a_program_that_is_matched(name: str, dynamic: bool) -> None:
    if dynamic and name == "one_head_of_keys":
        pytest.skip("Dynamo does not know that the heads are expanded to a fixed number")
    if dynamic and name == "windows":
        pytest.skip("its mask is for scores of 5 axes whose sizes vary")
    program = PROGRAMS[name]
    args = program.arguments()
    notes, gm, out = of_dynamo(program.fn, args, dynamic=dynamic)
    assert [note.why for note in notes] == [""]
    assert is_fused(gm)
    assert not gm.graph.find_nodes(op="call_function", target=torch.softmax)
    assert_near(out, program.fn(*args))


@pytest.mark.parametrize(("name", "is_decomposed"), twice(PROGRAMS))
def test_a_program_that_torch_exports(name: str, is_decomposed: bool) -> None:
    if is_decomposed and name.startswith("einsum"):
        pytest.skip("torch makes five axes of an einsum")
    program = PROGRAMS[name]
    args = tuple(program.arguments())
    exported = torch.export.export(Function(program.fn), args)
    gm = exported.run_decompositions().graph_module if is_decomposed else exported.graph_module
    assert [note.why for note in rewrite(gm)] == [""]
    assert is_fused(gm)
    assert_near(gm(*args)[0], program.fn(*args))


@pytest.mark.parametrize("name", [name for name, program in NEAR_MISSES.items() if program.why])
def test_a_near_miss(name: str) -> None:
    program = NEAR_MISSES[name]
    notes, gm, _ = of_dynamo(program.fn, program.arguments())
    assert len(notes) == 1
    assert program.why in notes[0].why
    assert not is_fused(gm)


def test_a_note_names_the_line() -> None:
    notes, _, _ = of_dynamo(PROGRAMS["einsum"].fn, PROGRAMS["einsum"].arguments())
    (note,) = notes
    assert str(note).startswith("attention: applied at einsum_1 (")
    assert "attention_programs.py:" in note.place


def test_the_option_turns_it_off() -> None:
    notes, gm, _ = of_dynamo(PROGRAMS["t5"].fn, PROGRAMS["t5"].arguments(), rewrites="-attention")
    assert not notes
    assert not is_fused(gm)


def why(program: Program, dtype: torch.dtype = torch.float32, **options: Any) -> str:
    """The reason why a program is left alone if its arguments need gradients, or if `dtype` or the options say so."""
    grad = options.pop("grad", False)
    notes, _, _ = of_dynamo(program.fn, program.arguments(dtype, grad=grad), grad=grad, **options)
    (note,) = notes
    return note.why


def test_gradients_of_float32() -> None:
    assert "takes longer" in why(PROGRAMS["einsum"], grad=True)
    assert why(PROGRAMS["einsum"], torch.bfloat16, grad=True) == ""


def test_few_queries_of_16_bits() -> None:
    """The CPU's fused kernel is slow for one query, and fast for two."""
    few = (B, H, L, D), (B, H, L, D), (1, L)
    assert "one query" in why(Program(mask_of_queries, ((B, H, 1, D), *few), {3: "bias"}), torch.bfloat16)
    assert why(Program(mask_of_queries, ((B, H, 2, D), *few), {3: "bias"}), torch.bfloat16) == ""


def test_a_mask_that_needs_a_gradient() -> None:
    learned = Program(PROGRAMS["t5"].fn, PROGRAMS["t5"].shapes)
    for options in ({}, {"target": "sm_90"}):
        assert "needs a gradient" in why(learned, torch.bfloat16, grad=True, **options)
    assert why(learned, torch.bfloat16) == ""


GPU = {"target": "sm_90"}


@pytest.mark.parametrize("name", ["bert", "nano_gpt", "llama", "built_inside", "einsum_length_first", "inverted_mask"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_program_for_a_gpu(name: str, dtype: torch.dtype) -> None:
    assert why(PROGRAMS[name], dtype, **GPU) == ""
    trained = why(PROGRAMS[name], dtype, grad=True, **GPU)
    assert trained == ("in float32 the fused gradient takes longer on a GPU" if dtype == torch.float32 else "")


def test_few_queries_of_float32_on_a_gpu() -> None:
    """They are faster written out, as was measured."""
    few = (B, H, 128, D), (B, H, 128, D), (1, 128)
    short = Program(mask_of_queries, ((B, H, 15, D), *few), {3: "bias"})
    assert "15 queries in float32" in why(short, **GPU)
    assert why(short, torch.bfloat16, **GPU) == ""
    assert why(Program(mask_of_queries, ((B, H, 16, D), *few), {3: "bias"}), **GPU) == ""


def test_dropout_on_a_gpu() -> None:
    assert "eager's random numbers" in why(NEAR_MISSES["dropped"], **GPU)
    assert why(NEAR_MISSES["dropped"], fuse_random=True, **GPU) == ""


def test_deterministic_gradients() -> None:
    assert why(PROGRAMS["einsum"], deterministic=True, **GPU) == ""
    assert "not deterministic" in why(PROGRAMS["einsum"], grad=True, deterministic=True, **GPU)
    assert why(PROGRAMS["einsum"], torch.bfloat16, grad=True, deterministic=True) == ""


@pytest.mark.parametrize(("size", "dtype", "is_taken"), [(100, torch.float32, True), (100, torch.bfloat16, False)])
def test_head_sizes_of_a_gpu(size: int, dtype: torch.dtype, is_taken: bool) -> None:
    program = Program(PROGRAMS["einsum"].fn, ((B, H, L, size),) * 3)
    assert ("multiples of 8" in why(program, dtype, **GPU)) is not is_taken


def _wide_mask(q: Any, k: Any, v: Any, bias: Any) -> Any:
    scores = q @ k.transpose(-1, -2) + bias.to(q.dtype).float()
    return scores.softmax(-1).to(v.dtype) @ v


def test_a_mask_that_would_be_rounded() -> None:
    program = Program(_wide_mask, ((B, H, L, D),) * 3 + ((L, L),), {3: "bias"})
    assert "would round to bfloat16" in why(program, torch.bfloat16, **GPU)
    assert why(program, torch.bfloat16) == ""


def test_no_keys() -> None:
    program = Program(mask_of_queries, ((B, H, L, D), (B, H, 0, D), (B, H, 0, D), (L, 0)), {3: "bias"})
    assert "no keys" in why(program)
    assert "no keys" in why(program, **GPU)


def test_autocast() -> None:
    """A kernel of 16 bits rounds a mask of float32, unless the mask only hides."""

    def cast(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return fn(*args)

        return call

    for name, reason in {"vit": "", "nano_gpt": "", "inverted_mask": "", "t5": "would round to bfloat16"}.items():
        args = PROGRAMS[name].arguments()
        notes, gm, out = of_dynamo(cast(PROGRAMS[name].fn), args)
        assert reason in notes[0].why
        assert is_fused(gm) is not bool(reason)
        eager = cast(PROGRAMS[name].fn)(*args)
        assert out.dtype == eager.dtype == torch.bfloat16
        if name != "vit":  # whose scores are large
            torch.testing.assert_close(out, eager, atol=0.05, rtol=0.05)
