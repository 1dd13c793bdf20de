"""Element types.

Takes: a short name ("f32", "bf16", "i64", "bool") or torch's ("float32").
Gives: frozen `DType` records with size, kind and numeric limits, and the dtype to which torch promotes two of them.
Refuses: unknown names (ValueError) and pairs that torch does not promote (TypeError).

>>> by_name("bf16").itemsize, compute_dtype(BF16), promote(BF16, F16), promote(U8, I8)
(2, f32, f32, i16)
>>> TORCH_NAMES["float32"] is F32, F32.max_value > 3.4e38, I8.min_value, F16.eps
(True, True, -128, 0.0009765625)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

DTypeKind: TypeAlias = Literal["float", "int", "uint", "bool", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    name: str
    itemsize: int
    kind: DTypeKind
    torch_name: str = field(compare=False)
    mantissa: int = field(default=0, compare=False)
    """The number of stored fraction bits of a float, or of the real part of a complex number."""
    max_value: int | float = field(default=0, compare=False)
    """The largest finite value; of a complex dtype, that of its real part."""

    @property
    def min_value(self) -> int | float:
        match self.kind:
            case "int":
                return -self.max_value - 1
            case "float" | "complex":
                # e8m0 has exponents only
                return 2.0**-127 if self.name == "f8e8m0fnu" else -self.max_value
            case "uint" | "bool":
                return 0

    @property
    def eps(self) -> float:
        """The gap between 1 and the next larger float."""
        return 2.0**-self.mantissa

    @property
    def bits(self) -> int:
        return 8 * self.itemsize

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


def _integer(name: str, itemsize: int, kind: Literal["int", "uint"], torch_name: str) -> DType:
    return DType(name, itemsize, kind, torch_name, 0, (1 << (8 * itemsize - (kind == "int"))) - 1)


BOOL = DType("bool", 1, "bool", "bool", 0, 1)
I8 = _integer("i8", 1, "int", "int8")
I16 = _integer("i16", 2, "int", "int16")
I32 = _integer("i32", 4, "int", "int32")
I64 = _integer("i64", 8, "int", "int64")
U8 = _integer("u8", 1, "uint", "uint8")
U16 = _integer("u16", 2, "uint", "uint16")
U32 = _integer("u32", 4, "uint", "uint32")
U64 = _integer("u64", 8, "uint", "uint64")
F16 = DType("f16", 2, "float", "float16", 10, 65504.0)
BF16 = DType("bf16", 2, "float", "bfloat16", 7, (2 - 2.0**-7) * 2.0**127)
F32 = DType("f32", 4, "float", "float32", 23, (2 - 2.0**-23) * 2.0**127)
F64 = DType("f64", 8, "float", "float64", 52, (2 - 2.0**-52) * 2.0**1023)
F8E4M3FN = DType("f8e4m3fn", 1, "float", "float8_e4m3fn", 3, 448.0)
F8E5M2 = DType("f8e5m2", 1, "float", "float8_e5m2", 2, 57344.0)
F8E4M3FNUZ = DType("f8e4m3fnuz", 1, "float", "float8_e4m3fnuz", 3, 240.0)
F8E5M2FNUZ = DType("f8e5m2fnuz", 1, "float", "float8_e5m2fnuz", 2, 57344.0)
F8E8M0FNU = DType("f8e8m0fnu", 1, "float", "float8_e8m0fnu", 0, 2.0**127)
# The precision to which a matrix unit rounds float32 operands, if the user allows it. No tensor has this dtype.
TF32 = DType("tf32", 4, "float", "float32", 10, (2 - 2.0**-10) * 2.0**127)
C32 = DType("c32", 4, "complex", "complex32", 10, 65504.0)
C64 = DType("c64", 8, "complex", "complex64", 23, F32.max_value)
C128 = DType("c128", 16, "complex", "complex128", 52, F64.max_value)

DTYPES: tuple[DType, ...] = (
    *(BOOL, I8, I16, I32, I64, U8, U16, U32, U64),
    *(F16, BF16, F32, F64, F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F8E8M0FNU),
    *(C32, C64, C128),
)
BY_NAME: Mapping[str, DType] = {dtype.name: dtype for dtype in (*DTYPES, TF32)}
TORCH_NAMES: Mapping[str, DType] = {dtype.torch_name: dtype for dtype in DTYPES}
"""torch's canonical names, without the "torch." in front."""

_PARTS: Mapping[str, DType] = {"c32": F16, "c64": F32, "c128": F64}
_COMPLEX_OF: Mapping[str, DType] = {"f16": C32, "bf16": C64, "f32": C64, "f64": C128}


def by_name(name: str) -> DType:
    try:
        return BY_NAME[name]
    except KeyError:
        raise ValueError(f"unknown dtype '{name}': one of {', '.join(BY_NAME)}") from None


def compute_dtype(dtype: DType) -> DType:
    """The dtype in which kernels compute: float32 for 16-bit and 8-bit floats, else the dtype itself."""
    return F32 if dtype.kind == "float" and dtype.itemsize < 4 else dtype


def accumulate_dtype(dtype: DType) -> DType:
    """The dtype of the accumulator of a long sum: float64 for float32, as in eager's CPU kernels; else as computed."""
    return F64 if dtype == F32 else compute_dtype(dtype)


def complex_parts(dtype: DType) -> DType:
    """The dtype of the real and imaginary parts."""
    return _PARTS[dtype.name] if dtype.kind == "complex" else dtype


def promote(a: DType, b: DType) -> DType:
    """The dtype to which torch promotes two tensors that both have dimensions (torch.promote_types)."""
    if a == b:
        return a
    if _rank(a) > _rank(b):
        a, b = b, a
    if not _is_promotable(a, b):
        raise TypeError(f"torch does not promote {a} with {b}")
    if b.kind == "complex":
        parts = complex_parts(b)
        return _COMPLEX_OF[promote(complex_parts(a), parts).name] if _rank(a) >= 2 else b
    if b.kind == "float":
        if a.kind == "float" and a.itemsize == b.itemsize:
            return F32  # neither of f16 and bf16 contains the other
        return b if a.kind != "float" or b.itemsize > a.itemsize else a
    if a.kind == "bool":
        return b
    if {a, b} == {U8, I8}:
        return I16
    return a if a.itemsize > b.itemsize else b if a.itemsize < b.itemsize else (a if a.kind == "int" else b)


def _rank(dtype: DType) -> int:
    return {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}[dtype.kind]


def _is_promotable(low: DType, high: DType) -> bool:
    if any(dtype.kind == "float" and dtype.itemsize == 1 for dtype in (low, high)):
        return False
    wide = [dtype for dtype in (low, high) if dtype.kind == "uint" and dtype.itemsize > 1]
    return not wide or (wide == [low] and high.kind == "float")
