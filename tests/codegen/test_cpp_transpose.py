"""The transposition in registers: every size of block, on vectors of each width that this machine can run."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from minductor.codegen.cpp.cpp_math import prelude

MOVE = """
extern "C" void move_{name}(const {type}* in, int64_t s, int64_t rows, int64_t columns, {type}* out, int64_t out_s) {{
  md_transpose(in, s, rows, columns, out, out_s);
}}
extern "C" void copy_{name}(const {type}* in, int64_t s, int64_t rows, int64_t columns, {type}* out, int64_t out_s) {{
  md_copy_transposed(in, s, rows, columns, out, out_s);
}}
"""
WIDEN = """
extern "C" void widen(const uint16_t* in, int64_t s, int64_t rows, int64_t columns, float* out, int64_t out_s) {
  md_transpose(in, s, rows, columns, out, out_s);
}
"""
ROUND = """
extern "C" void {name}(const {type}* in, int64_t s, int64_t rows, int64_t columns, {to}* out, int64_t out_s) {{
  md_transpose_{name}(in, s, rows, columns, out, out_s);
}}
"""
CONVERSIONS = {"rounded": ("float", "uint16_t"), "halved": ("float", "uint16_t"), "widened": ("uint16_t", "float")}
TYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "int64_t": torch.int64,
    "uint16_t": torch.uint16,
    "int16_t": torch.int16,
    "int8_t": torch.int8,
    "uint8_t": torch.uint8,
}


@pytest.mark.parametrize("architecture", ["native", "haswell", "x86-64"])
def test_every_block_is_transposed_and_nothing_else_is_written(architecture: str, tmp_path: Path) -> None:
    moves = "".join(MOVE.format(name=type, type=type) for type in TYPES)
    conversions = "".join(ROUND.format(name=name, type=given, to=made) for name, (given, made) in CONVERSIONS.items())
    source, library = tmp_path / "t.cpp", tmp_path / "t.so"
    source.write_text(
        prelude(["md_transpose", "md_copy_transposed", *(f"md_transpose_{name}" for name in CONVERSIONS)])
        + moves
        + WIDEN
        + conversions,
        encoding="utf-8",
    )
    flags = ["-O2", "-std=c++17", f"-march={architecture}", "-shared", "-fPIC", "-w"]
    subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True)
    functions = ctypes.CDLL(str(library))
    numbers = torch.arange(40 * 80, dtype=torch.float32).reshape(40, 80)
    check(functions.widen, numbers.bfloat16(), torch.float32)
    check(functions.rounded, numbers / 7, torch.bfloat16)
    check(functions.halved, numbers / 7, torch.float16)
    check(functions.widened, (numbers / 7).half(), torch.float32)
    check(functions.widened, (numbers / 7).half(), torch.float32, width=48, filled=16)
    for type, dtype in TYPES.items():
        given, page = (numbers % 251 - 125).to(torch.int64).to(dtype), 4096 // dtype.itemsize
        check(functions[f"move_{type}"], given, dtype)
        for width in (41, page - 1, page, page + 3):  # rows about a page apart share few sets of the cache
            check(functions[f"copy_{type}"], given, dtype, width=width)
            check(functions[f"copy_{type}"], given.t().contiguous(), dtype, width=width)


def check(move: Callable[..., object], given: Tensor, dtype: torch.dtype, *, width: int = 41, filled: int = 1) -> None:
    """Moves blocks of all sizes. `filled`: a row may be filled up to a multiple of so many elements."""
    height, length = given.shape
    for rows in (n for n in (0, 1, 3, 4, 8, 15, 16, 17, 32, 40, 65, 80) if n <= height):
        for columns in (n for n in (0, 1, 4, 7, 16, 33, 40, 80) if n <= length):
            made = torch.full((length, max(width, height)), 99, dtype=dtype)
            pointers = [ctypes.c_void_p(t.data_ptr()) for t in (given, made)]
            size = [ctypes.c_int64(n) for n in (length, rows, columns, made.stride(0))]
            move(pointers[0], *size[:3], pointers[1], size[3])
            expected = torch.full_like(made, 99)
            expected[:columns, :rows] = given[:rows, :columns].t().to(dtype)
            made[:columns, rows : -(-rows // filled) * filled] = 99
            assert torch.equal(made, expected), (rows, columns)
