"""The conversions of strips of float16: every value, on each kind of vectors that this machine can run."""

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from minductor.codegen.cpp.cpp_math import prelude

ENTRY = """
extern "C" void widen(const uint16_t* in, int count, float* out) { md_f16_load(in, count, out); }
extern "C" void narrow(const float* in, int count, uint16_t* out) { md_f16_store(in, count, out); }
extern "C" void round_(const float* in, int count, float* out) {
  for (int l = 0; l < count; ++l) out[l] = md_f16_round_f32(in[l]);
}
"""


def near_ties() -> torch.Tensor:
    """Each float16, what lies between it and the next, and their neighbours in float32, of both signs."""
    places = torch.arange(1 << 15, dtype=torch.int16).view(torch.float16).float().view(torch.int32)
    denormal = (torch.arange(2048) + 0.5) * 2.0**-24
    middles = torch.cat([places, places + 0x1000, denormal.float().view(torch.int32)])
    near = torch.cat([middles + step for step in (-1, 0, 1)])
    return torch.cat([near, near | torch.iinfo(torch.int32).min]).view(torch.float32)


def is_same(made: torch.Tensor, expected: torch.Tensor) -> bool:
    """Bits, and NaN for NaN."""
    bits = torch.int16 if made.element_size() == 2 else torch.int32
    return bool(((made.view(bits) == expected.view(bits)) | (made.isnan() & expected.isnan())).all())


@pytest.mark.parametrize("architecture", ["native", "haswell", "x86-64"])
def test_every_value_is_converted_and_nothing_else_is_written(architecture: str, tmp_path: Path) -> None:
    source, library = tmp_path / "s.cpp", tmp_path / "s.so"
    needed = prelude(["md_f16_load", "md_f16_store", "md_f16_round_f32"])
    source.write_text(needed + ENTRY, encoding="utf-8")
    flags = [
        "-O3",
        "-std=c++17",
        "-ffp-contract=off",
        f"-march={architecture}",
        "-fopenmp-simd",
        "-shared",
        "-fPIC",
        "-w",
    ]
    subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))

    def call(name: str, given: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        getattr(loaded, name)(
            ctypes.c_void_p(given.data_ptr()), ctypes.c_int(len(given)), ctypes.c_void_p(made.data_ptr())
        )
        return made

    halves = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    assert is_same(call("widen", halves, torch.empty(1 << 16)), halves.float())
    singles = near_ties()
    assert is_same(call("narrow", singles, torch.empty(len(singles), dtype=torch.float16)), singles.half())
    assert is_same(call("round_", singles, torch.empty(len(singles))), singles.half().float())
    for count in (0, 1, 7, 8, 9, 16, 33, 64):
        narrowed = call("narrow", singles[:count], torch.full((65,), 7, dtype=torch.float16))
        widened = call("widen", halves[:count], torch.full((80,), 7.0))
        assert is_same(narrowed[:count], singles[:count].half()) and bool((narrowed[count:] == 7).all())
        behind = widened[-(-count // 16) * 16 :]  # the array has space for a multiple of 16
        assert is_same(widened[:count], halves[:count].float()) and bool((behind == 7).all())
