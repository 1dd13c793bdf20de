"""A skeleton changes with what a kernel does to memory, and with nothing else."""

import pytest

from pytest_plugin.goldens.skeleton import skeleton

CPP = """\
extern "C" int64_t sum_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 32; ++i0) {
    float lanes[64];
    for (int l = 0; l < 64; ++l) lanes[l] = 0.0f;
    md_lanes<64>(0, 256, [&](int64_t i1, int l) MD_LAMBDA {
      lanes[l] = lanes[l] + in0[256 * i0 + i1];
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA { lanes[a] = lanes[a] + lanes[b]; });
    if (i0 > 3) out1[i0] = lanes[0]; else out1[i0] += 1;
  }
  return 0;
}
"""
TRITON = """\
@triton.jit
def sum_0(in0, out1, n, XBLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    acc = tl.zeros([XBLOCK], tl.float32)
    for r in range(0, n, 64):
        x = tl.load(in0 + i0 + r, mask=i0 < n)
        acc += tl.dot(x, x)
    tl.debug_barrier()
    tl.atomic_add(out1 + i0, tl.sum(acc, 0))
"""
WRAPPER = """\
def call(args):
    arg0, = args
    buf1 = empty((4, 8))
    events.append(('allocate', 'buf1'))
    sum_0(arg0, buf1)
    del arg0
    return (buf1,)
"""
IR = """\
program p
  buffer buf1: f32[4] stride [1] cpu
  extern k0 out aten.mm.out(buf0@0 f32[4]) -> (buf1@0 f32[4]) from mm
  kernel k1 (i0: 4)
    %0 = load buf1@0[i0] : f32 {i0}
"""


def test_what_it_is() -> None:
    assert skeleton(CPP, "cpp") == (
        "kernel",
        "  parallel",
        "  for",
        "    lanes",
        "      load",
        "    reduce",
        "    if",
        "      store",
        "    else",
        "      store",
    )
    assert skeleton(TRITON, "py") == ("kernel", "  for", "    load dot", "  barrier reduce atomic")
    assert skeleton(WRAPPER, "py", "wrapper") == ("function", "  empty sum_# del return")
    assert skeleton(IR, "ir") == ("program", "  buffer", "  extern aten.mm.out", "  kernel", "    load")
    assert skeleton("def f(x):\n    return x.sin() + 1", "py") == ("function", "  sin add return")
    tried = "def f(x):\n  try:\n    g(x)\n  except E:\n    h()\n  finally:\n    del x"
    assert skeleton(tried, "py", "wrapper")[1:] == ("  try", "    g", "  except", "    h", "  finally", "    del")


@pytest.mark.parametrize(
    ("language", "text", "old", "new"),
    [
        ("cpp", CPP, "in0[", "in0[2 + "),
        ("cpp", CPP, "lanes", "many"),
        ("cpp", CPP, "sum_0", "mean_3"),
        ("cpp", CPP, "256", "512"),
        ("cpp", CPP, "[l] + in0", "[l] * in0"),
        ("cpp", CPP, "    float lanes[64];\n", "    float lanes[64];\n    float more[8];\n"),
        ("py", TRITON, ", mask=i0 < n", ""),
        ("py", TRITON, "64", "128"),
        ("py", TRITON, "x", "y"),
        ("ir", IR, "f32", "bf16"),
    ],
)
def test_what_leaves_it(language: str, text: str, old: str, new: str) -> None:
    if "md_" in text and old == "lanes":
        text = text.replace("md_lanes", "md_rows").replace("md_join_lanes", "md_join_rows")
    assert old in text
    assert skeleton(text.replace(old, new), language) == skeleton(text, language)


@pytest.mark.parametrize(
    ("language", "text", "old", "new"),
    [
        ("cpp", CPP, "+ in0[256 * i0 + i1]", "+ in0[i0] * in0[i1]"),
        ("cpp", CPP, "#pragma omp parallel for num_threads(threads)\n", ""),
        ("cpp", CPP, "else out1[i0] += 1;", ""),
        ("cpp", CPP, "    md_join", "    out1[0] = 1;\n    md_join"),
        ("py", TRITON, "tl.dot(x, x)", "x"),
        ("py", TRITON, "    tl.debug_barrier()\n", ""),
        ("py", TRITON, "atomic_add", "store"),
        ("py", TRITON, "    tl.debug", "        tl.debug"),
        ("ir", IR, "aten.mm", "aten.bmm"),
        ("txt", "a", "a", "b"),
    ],
)
def test_what_changes_it(language: str, text: str, old: str, new: str) -> None:
    assert old in text
    assert skeleton(text.replace(old, new), language) != skeleton(text, language)
