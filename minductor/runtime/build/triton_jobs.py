"""The jobs of worker processes: compile a Triton kernel for a GPU, which may be elsewhere, or interpret one launch of
it.

Takes the text of a module of kernels, and how one of them is launched. Gives the kernel's assembly with facts about it,
or the contents of tensors after a launch. Refuses nothing itself: Triton's errors are raised.

These functions run in workers only (runtime/build/pool.py). When Triton is imported, it decides whether it compiles or
interprets, so a process does only one of the two.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from minductor.ir.artefact.launch_metadata import COUNTERS, MULTIPLE, LaunchMetadata

WARP: Mapping[str, int] = MappingProxyType({"cuda": 32, "hip": 64})  # threads


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One compiled kernel. `spills`: bytes per thread. `shared`: bytes per program. None where no tool tells."""

    symbol: str
    blocks: Mapping[str, int]
    warps: int
    assembly: str  # PTX, or AMD's assembly
    binary: bytes  # a cubin, or a hsaco
    registers: int | None
    spills: int | None
    shared: int
    entry: str = ""  # the kernel's name in the binary
    threads: int = 0  # of a program
    scratch: int = 0  # bytes of global memory that a program uses beside its arguments
    is_aligned: bool = True  # it relies on pointers at multiples of 16 bytes


@dataclass(frozen=True, slots=True)
class Memory:
    """A tensor for the interpreter: the number of its storage, and its place there."""

    storage: int
    dtype: str
    offset: int


def compiled_text(text: str, launch: LaunchMetadata) -> str:
    r"""All that a kernel's machine code depends on, without the kernel's name: equal for equal kernels.

    That is the kernel's function with the functions that it calls, and the launch without its number of programs.

    >>> text = "def a_0(x): f(x)\ndef f(x): ...\ndef b_1(x): ..."
    >>> compiled_text(text, LaunchMetadata("a_0", {"x": "i64"}, (2,), {}, 4)).splitlines()
    ['def kernel(x):', '    f(x)', 'def f(x):', '    ...', "({'x': 'i64'}, {}, 4, None, None)"]
    """
    return kernel_text(functions_of(text), launch)


def functions_of(text: str) -> dict[str, ast.FunctionDef]:
    """The functions of a module of kernels, by name."""
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def kernel_text(functions: Mapping[str, ast.FunctionDef], launch: LaunchMetadata) -> str:
    """As `compiled_text`, from the functions of the module."""
    needed, pending = dict[str, str](), [launch.symbol]
    while pending:
        one = pending.pop()
        if one in functions and one not in needed:
            needed[one] = ast.unparse(functions[one])
            pending += [node.id for node in ast.walk(functions[one]) if isinstance(node, ast.Name)]
    options = (
        launch.parameters,
        launch.blocks,
        launch.warps,
        launch.stages,
        launch.registers,
        *launch.multiples.items(),
    )
    return "\n".join([*needed.values(), str(options)]).replace(launch.symbol, "kernel")


def module_of(text: str) -> ModuleType:
    """The module of kernels, imported from a file, since Triton reads the source of kernels from their file."""
    warnings.filterwarnings("ignore", "tl.make_block_ptr is deprecated")  # the user asked for it
    name = f"minductor_kernels_{abs(hash(text)):x}"
    if name not in sys.modules:
        with tempfile.NamedTemporaryFile("w", suffix=".py", prefix=name, delete=False) as file:
            file.write(text)
        spec = importlib.util.spec_from_file_location(name, file.name)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)  # Triton reads each function's source here
        finally:
            Path(file.name).unlink()
    return sys.modules[name]


def load_triton() -> None:
    """A job for workers that start before their first kernel is known."""
    import triton.compiler  # noqa: F401


def cuda_version(arch: str) -> str:
    """The version of CUDA whose assembler Triton uses for an architecture, such as "12.8"; "" if Triton has no word."""
    from triton.backends.nvidia import compiler

    assembler: Any = getattr(compiler, "get_ptxas", lambda arch: None)(int(arch))
    return str(getattr(assembler, "version", ""))


def compile_kernel(text: str, launch: LaunchMetadata, kind: str, arch: str, *, is_aligned: bool = True) -> KernelFacts:
    """Compiles one kernel of the module `text` for an architecture such as ("cuda", "90") or ("hip", "gfx942").

    `is_aligned`: the kernel's pointers will be multiples of 16 bytes.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = dict(launch.parameters)
    places = {name: (number,) for number, name in enumerate(kinds)}
    aligned = {name: MULTIPLE for name, given in kinds.items() if is_aligned and given[0] == "*"}
    source = ASTSource(
        fn=getattr(module_of(text), launch.symbol),
        signature=kinds,
        constexprs={places[name]: size for name, size in launch.blocks.items()},
        attrs={places[name]: [["tt.divisibility", factor]] for name, factor in {**aligned, **launch.multiples}.items()},
    )
    target = GPUTarget(kind, int(arch) if arch.isdecimal() else arch, WARP[kind])
    # as in eager and in the interpreter: a product and a sum round twice, and no small number is taken for zero
    options: dict[str, Any] = {"num_warps": launch.warps, "enable_fp_fusion": False, "enable_reflect_ftz": False}
    if launch.stages is not None:
        options["num_stages"] = launch.stages
    if launch.registers is not None:
        options["maxnreg"] = launch.registers
    if "tl.device_assert(" in compiled_text(text, launch):
        # without debug, Triton drops assertions; integers wrap around as in eager, with or without it
        options.update(debug=True, sanitize_overflow=False)
    made: Any = triton.compile(source, target=target, options=options)
    assembly, binary = ("ptx", "cubin") if kind == "cuda" else ("amdgcn", "hsaco")
    registers, spills = _cubin_facts(made.asm[binary]) if kind == "cuda" else _amd_facts(made.asm[assembly])
    if kind == "cuda" and spills:
        spills = max(0, spills - declared_stack(made.asm[assembly]))
    metadata = made.metadata
    return KernelFacts(
        launch.name,
        dict(launch.blocks),
        launch.warps,
        made.asm[assembly],
        made.asm[binary],
        registers,
        spills,
        metadata.shared,
        metadata.name,
        metadata.num_warps * WARP[kind],
        getattr(metadata, "global_scratch_size", 0),
        is_aligned,
    )


def declared_stack(ptx: str) -> int:
    """The bytes of a thread's stack that hold declared arrays, such as those of `sin`; spilled registers do not count.

    >>> declared_stack(".local .align 4 .b8 \t__local_depot0[28];")
    32
    """
    return sum(-(-int(size) // 8) * 8 for size in re.findall(r"\.local \.align \d+ \.b8\s+\w+\[(\d+)\];", ptx))


def _cubin_facts(cubin: bytes) -> tuple[int | None, int | None]:
    """Registers, and bytes of stack, as the tool in Triton's wheel reports them."""
    import triton

    tool = Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        return None, None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    registers, stack = re.search(r"REG:(\d+)", usage), re.search(r"STACK:(\d+)", usage)
    return int(registers[1]) if registers else None, int(stack[1]) if stack else None


def _amd_facts(assembly: str) -> tuple[int | None, int | None]:
    registers = re.search(r"\.vgpr_count:\s*(\d+)", assembly)
    spills = re.search(r"\.vgpr_spill_count:\s*(\d+)", assembly)
    return int(registers[1]) if registers else None, 4 * int(spills[1]) if spills else None


class AssertFailed(Exception):
    """A kernel's assertion failed in the interpreter. The argument is the assertion's message."""


def interpret_kernel(
    text: str,
    launch: LaunchMetadata,
    programs: int,
    storages: Sequence[bytes],
    tensors: Sequence[Memory],
    sizes: Sequence[Any],
) -> list[bytes]:
    """Runs one launch in Triton's interpreter. Returns what the storages then hold. Raises AssertFailed."""
    import torch

    torch.set_num_threads(1)
    _complete_interpreter()
    module = module_of(text)
    held = [bytearray(data) for data in storages]
    given: list[torch.Tensor] = []
    for memory in tensors:
        dtype, data = getattr(torch, memory.dtype), held[memory.storage]
        start = memory.offset * dtype.itemsize
        is_empty = start >= len(data)
        given.append(torch.empty(1, dtype=dtype) if is_empty else torch.frombuffer(data, dtype=dtype, offset=start))
    counter = [torch.zeros(COUNTERS, dtype=torch.int32)] * launch.has_counter
    used = [_aligned(tensor) if "tl.make_tensor_descriptor(" in text else tensor for tensor in given]
    kinds = [kind for kind in launch.arguments.values() if kind[0] != "*"]
    numbers = [Int32(size) if kind == "i32" else size for size, kind in zip(sizes, kinds, strict=True)]
    before = [copy if copy is tensor else copy.clone() for tensor, copy in zip(given, used, strict=True)]
    try:
        getattr(module, launch.symbol)[(programs,)](*used, *numbers, *counter, **launch.blocks)
    except Exception as error:  # Triton's, around the one that a kernel raised
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, AssertFailed):
            cause = cause.__cause__
        raise cause or error from None
    assert not any(map(torch.count_nonzero, counter)), f"{launch.symbol} leaves its counter at {counter}"
    for tensor, copy, old in zip(given, used, before, strict=True):
        if copy is not tensor:  # what was written goes back, and nothing else: others may have written to it
            here, new, was = (t.view(torch.uint8) for t in (tensor, copy, old))
            here.copy_(torch.where(new != was, new, here))
    return [bytes(data) for data in held]


class Int32(int):
    """A number of a launch whose declared type has 32 bits."""


def _aligned(tensor: Any) -> Any:
    """The tensor, or a copy that a descriptor can take."""
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


def _complete_interpreter() -> None:
    """Adds to Triton's interpreter what it lacks or does differently from a GPU.

    These are functions of libdevice, instructions, assertions that raise, the dtype of comparisons, the inverse of
    unsigned integers, reductions as trees, rounding of 16-bit and 8-bit floats, and the declared types of a launch's
    numbers.
    """
    from triton.language.extra import libdevice

    if getattr(libdevice, "is_complete", False):
        return
    for name, function in _libdevice().items():
        setattr(libdevice, name, _interpreted(function))
    setattr(libdevice, "is_complete", True)  # noqa: B010  a mark of ours that the stubs do not know
    from triton.runtime import interpreter

    builder: Any = interpreter.interpreter_builder
    # integers wrap around as in eager, whatever debug says
    builder.options = replace(builder.options, debug=True, sanitize_overflow=False)
    builder.create_dot = _dot(builder.create_dot)
    module: Any = interpreter
    module._convert_float = _rounding(module._convert_float)
    module._patch_lang_tensor = _counting(module._patch_lang_tensor)
    module._implicit_cvt = _declared(module._implicit_cvt)
    module.ReduceOps.generic_reduce = _joined_as_tree
    module.ScanOps.generic_scan = _scanned_as_tree
    kind: Any = type(builder)
    kind.binary_op = _comparing(kind.binary_op)
    kind.create_assert = _asserting(kind.create_assert)
    kind.create_inline_asm = _computing
    kind.create_atomic_rmw = _adding(kind.create_atomic_rmw)
    kind.get_all_ones_value = _unsigned(kind.get_all_ones_value)


def _dot(create: Any) -> Any:
    """`tl.dot` of bfloat16 blocks: the interpreter would read their bits as integers."""
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = torch.from_numpy(handle.data.view("int16")).to(torch.int32) << 16
        return TensorHandle(bits.view(torch.float32).numpy(), tl.float32)

    return lambda a, b, *rest: create(widened(a), widened(b), *rest)


class _Results(NamedTuple):
    """What the interpreter asks for an instruction's results."""

    result: Any

    def get_result(self, number: int) -> Any:
        assert number == 0
        return self.result


def _computing(builder: Any, assembly: str, constraints: str, values: Sequence[Any], *rest: Any) -> _Results:
    """The instructions that kernels name, which the interpreter lacks."""
    import torch
    from triton.runtime.interpreter import TensorHandle

    del builder, constraints, rest
    functions = {"ex2.approx.ftz.f32": torch.exp2, "rcp.approx.ftz.f32": torch.reciprocal}
    (value,) = values
    computed = functions[assembly.partition(" ")[0]](torch.from_numpy(value.data))
    return _Results(TensorHandle(computed.numpy(), value.dtype))


def _asserting(create: Any) -> Any:
    """Assertions of kernels as AssertFailed, which distinguishes them from the interpreter's own."""

    def call(self: Any, condition: Any, message: str) -> Any:
        try:
            return create(self, condition, message)
        except AssertionError:
            raise AssertFailed(message) from None

    return call


def _adding(create: Any) -> Any:
    """Atomic sums of bfloat16, which the interpreter lacks: one element after the other."""
    import torch
    import triton.language as tl
    from triton.runtime import interpreter

    native: Any = interpreter
    memory = native._interpreter

    def call(self: Any, op: Any, at: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if value.dtype.scalar != tl.bfloat16 or "add" not in str(op).lower():
            return create(self, op, at, value, mask, *rest)
        shape = value.data.shape
        places, bits, given = at.data.reshape(-1), value.data.reshape(-1), mask.data.reshape(-1)
        before = bits.copy()
        for n in range(bits.size):
            one = slice(n, n + 1)
            before[one] = memory.load(places[one], given[one], bits[one], bits.dtype)
            pair = torch.from_numpy(before[one].view("int16").copy()).view(torch.bfloat16)
            total = pair + torch.from_numpy(bits[one].view("int16").copy()).view(torch.bfloat16)
            memory.store(places[one], total.view(torch.int16).numpy().view("uint16"), given[one])
        return interpreter.TensorHandle(before.reshape(shape), tl.bfloat16)

    return call


def _unsigned(all_ones: Any) -> Any:
    """All bits set, also for unsigned integers, which the interpreter cannot make from -1."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(self: Any, kind: Any) -> Any:
        scalar = kind.scalar
        if not scalar.name.startswith("uint"):
            return all_ones(self, kind)
        signed = getattr(tl, scalar.name.removeprefix("u"))
        return TensorHandle(all_ones(self, signed).data.view(scalar.name), scalar)

    return call


def _joined_as_tree(reduce: Any, given: Any) -> list[Any]:
    """A reduction with a function, as a tree of neighbours like on a GPU.

    The interpreter's own reduction goes from element to element, which rounds differently.
    """
    values = [arg.handle.data for arg in given]
    while values[0].shape[reduce.axis] > 1:
        values = _combined(reduce, given, [_part(reduce, values, slice(first, None, 2)) for first in (0, 1)])
    if not reduce.keep_dims:
        values = [data.squeeze(reduce.axis) for data in values]
    return [reduce.to_tensor(data, arg.dtype) for data, arg in zip(values, given, strict=True)]


def _scanned_as_tree(scan: Any, given: Any) -> list[Any]:
    """A scan with a function: each step doubles the number of elements that an element's value covers."""
    values, step = [arg.handle.data.copy() for arg in given], 1
    while step < values[0].shape[scan.axis]:
        before, rest = [data.copy() for data in values], slice(step, None)
        for there, data in zip(_part(scan, before, rest), _part(scan, values, slice(None, -step)), strict=True):
            there[...] = data
        made = _combined(scan, given, [before, values])
        for there, data in zip(_part(scan, values, rest), _part(scan, made, rest), strict=True):
            there[...] = data
        step *= 2
    return [scan.to_tensor(data, arg.dtype) for data, arg in zip(values, given, strict=True)]


def _part(along: Any, values: Any, part: slice) -> list[Any]:
    return [data[(*(slice(None),) * along.axis, part)] for data in values]


def _combined(along: Any, given: Any, sides: Any) -> list[Any]:
    """Two groups of arrays combined by the function of a reduction or scan."""
    tensors = [along.to_tensor(data, arg.dtype) for side in sides for data, arg in zip(side, given, strict=True)]
    made = along.combine_fn.fn(*tensors)
    return [tensor.handle.data for tensor in (made if isinstance(made, tuple) else (made,))]


def _declared(convert: Any) -> Any:
    """The numbers of a launch with their declared types. The interpreter would take most integers as 32 bits, which
    wrap around, and leave floats to Python.
    """
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(arg: Any) -> Any:
        if isinstance(arg, bool) or not isinstance(arg, int | float):
            return convert(arg)
        is_float = isinstance(arg, float)
        kind = "float64" if is_float else "int32" if isinstance(arg, Int32) else "int64"
        values, element = torch.tensor([arg], dtype=getattr(torch, kind)).numpy(), getattr(tl, kind)
        return tl.tensor(TensorHandle(values, element), element)

    return call


def _counting(patch: Any) -> Any:
    """A launch's number as the end of a loop: Triton 3.6 refuses the array of one element that the number is."""

    def call(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return call


def _comparing(binary_op: Any) -> Any:
    """Comparisons with boolean results; the interpreter's have the type of their operands."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(self: Any, left: Any, right: Any, op: Any) -> Any:
        made = binary_op(self, left, right, op)
        return TensorHandle(made.data, tl.int1) if made.data.dtype == bool else made

    return call


def _rounding(convert: Any) -> Any:
    """Conversions that round to nearest, as GPUs and torch do."""
    import torch
    import triton.language as tl

    narrow = {"bf16": torch.bfloat16, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}

    def call(data: Any, old: Any, new: Any, mode: Any) -> Any:
        if old.name in narrow and old.primitive_bitwidth == 8:  # the interpreter's own knows no infinity
            wide = torch.from_numpy(data.view("uint8")).view(narrow[old.name]).float().numpy()
            return wide if new.name == "fp32" else convert(wide, tl.float32, new, mode)
        if old.name not in ("fp32", "fp64") or new.name not in narrow:
            return convert(data, old, new, mode)
        made = torch.from_numpy(data.copy()).to(narrow[new.name])
        return made.view(torch.int16 if made.itemsize == 2 else torch.uint8).numpy().view(f"u{made.itemsize}")

    return call


def _libdevice() -> dict[str, Any]:
    """The functions of libdevice that kernels call, computed by torch."""
    import torch

    same = (
        "exp tanh expm1 log10 log1p tan erfc erfinv asin acos atan sinh cosh asinh acosh atanh lgamma floor ceil trunc"
    )
    same += " rsqrt fmod pow atan2 hypot nextafter copysign signbit"
    found: dict[str, Any] = {name: getattr(torch, name) for name in same.split()}
    special = {"cyl_bessel_i0": "i0", "cyl_bessel_i1": "i1", "erfcx": "erfcx", "normcdfinv": "ndtri"}
    found.update({name: getattr(torch.special, other) for name, other in special.items()})
    found["nearbyint"] = torch.round
    return found


def _interpreted(function: Any) -> Any:
    """A function of torch as a function of the interpreter's tensors."""
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*args: Any) -> Any:
        data = torch.broadcast_tensors(*[torch.from_numpy(arg.handle.data) for arg in args])
        made = function(*data)
        element = tl.int1 if made.dtype == torch.bool else args[0].dtype
        values, shape = made.contiguous().numpy(), list(made.shape)
        wide = any(arg.type.is_block() for arg in args)
        return tl.tensor(TensorHandle(values, element), tl.block_type(element, shape) if wide else element)

    return call
