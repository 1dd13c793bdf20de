"""Two texts have one canonical form if they differ in names and layout only; a difference shows nothing else."""

import re

import pytest

from pytest_plugin.goldens.canonical import canonical
from pytest_plugin.goldens.readable_diff import readable_diff

CPP = """\
// aten.sin: sin
extern "C" int64_t fused_sin_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp simd
  for (int64_t i0 = 0; i0 < 32; ++i0) {
    const float x0 = in0[i0];
    const float x1 = md_sin_f32(x0);
    out1[i0] = x1 + 1.0f;
  }
  return 0;
}
"""
PY = """\
import torch
fused_0 = kernels('fused_0')

def call(args):
    arg0, = args
    buf1 = empty((4, 8))
    # 1: sin
    if status := fused_0(arg0, buf1):
        fail(status)
    else:
        buf1 = None
    return (buf1,)

@triton.jit
def sum_0(a, b: tl.constexpr):
    try:
        return a + b
    except TypeError:
        return a
"""


def form(text: str, language: str) -> list[str]:
    return [line.text for line in canonical(text, language)]


@pytest.mark.parametrize(
    ("language", "text", "old", "new"),
    [
        ("cpp", CPP, "x1", "y"),
        ("cpp", CPP, "i0", "row"),
        ("cpp", CPP, "// aten.sin: sin\n", "/* another */"),
        ("cpp", CPP, "  ", "\t"),
        ("cpp", CPP, "{\n", "\n{\n\n"),
        ("py", PY, "buf1", "out"),
        ("py", PY, "# 1: sin\n", "# 2: cos\n"),
        ("py", PY, "(4, 8)", "( 4,8 )"),
        ("py", PY, "'fused_0'", '"fused_0"'),
    ],
)
def test_the_same(language: str, text: str, old: str, new: str) -> None:
    assert old in text
    assert form(text, language) == form(text.replace(old, new), language)
    if old.isidentifier():
        assert readable_diff(text, text.replace(old, new), language).lines == ()


@pytest.mark.parametrize(
    ("language", "text", "old", "new"),
    [
        ("cpp", CPP, "md_sin_f32", "md_cos_f32"),
        ("cpp", CPP, "fused_sin_0", "fused_sin_1"),
        ("cpp", CPP, "x1 + 1.0f", "x0 + 1.0f"),
        ("cpp", CPP, "1.0f", "1.5f"),
        ("cpp", CPP, "float x1", "double x1"),
        ("cpp", CPP, "i0 < 32", "i0 <= 32"),
        ("cpp", CPP, "#pragma omp simd\n", ""),
        ("cpp", CPP, "in0[i0]", "out1[i0]"),
        ("cpp", CPP, "__restrict ", ""),
        ("py", PY, "empty(", "zeros("),
        ("py", PY, "fused_0(arg0, buf1)", "fused_0(buf1, arg0)"),
        ("py", PY, "'fused_0'", "'fused_1'"),
        ("py", PY, "(4, 8)", "(8, 4)"),
        ("py", PY, "fail(status)", "pass"),
        ("py", PY, "    else:\n        buf1 = None\n", "    buf1 = None\n"),
        ("py", PY, "    else:\n        buf1 = None\n", "        buf1 = None\n"),
        ("py", PY, "b: tl.constexpr", "b"),
        ("py", PY, "def sum_0", "def sum_1"),
        ("py", PY, "TypeError", "ValueError"),
        ("txt", "a", "a", "b"),
    ],
)
def test_another(language: str, text: str, old: str, new: str) -> None:
    assert old in text
    assert form(text, language) != form(text.replace(old, new), language)
    shown = readable_diff(text, text.replace(old, new), language).lines
    assert any(line.startswith(("+", "-")) for line in shown)


def test_names_of_one_kernel_do_not_number_the_next() -> None:
    assert form(CPP + CPP.replace("x1", "y"), "cpp") == form(CPP, "cpp") * 2
    more = CPP.replace("  return", "  int64_t more = 1;\n  return")
    assert form(more + CPP, "cpp")[-len(form(CPP, "cpp")) :] == form(CPP, "cpp")


def test_a_name_without_a_partner_does_not_read_like_an_old_one() -> None:
    new = CPP.replace("x1", "x2").replace("x0", "x1").replace("x2 + 1.0f", "x2 + x0")
    shown = "\n".join(readable_diff(CPP, new, "cpp").lines)
    assert "+    out1[i0] = x1 + x0_new;" in shown


def test_one_new_line_among_ten_thousand_is_all_that_is_shown() -> None:
    lines = [f"    const float x{n} = md_sin_f32(x{n - 1});" for n in range(1, 10_000)]
    new = [*lines[:5000], "    int64_t y = 0;", *lines[5000:]]
    renamed = re.sub(r"x(\d{4})", r"z\1", "\n".join(new))
    changes = readable_diff("\n".join(lines), renamed, "cpp")
    assert changes.renamed == 9000
    assert [line for line in changes.lines if line.startswith(("+", "-"))] == ["+    int64_t y = 0;"]
