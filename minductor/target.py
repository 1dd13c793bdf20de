"""The machines that minductor compiles for, as data that is the same on every host.

Takes the name of a machine. Gives its frozen `Target`, and the `Env` (options and target) that every stage takes.
Refuses names that are not in the table. Nothing here looks at the machine that compiles: generated text must not depend
on it, and runtime/build/probe.py describes it.

>>> by_name("sm_90").warp_size
32
>>> by_name("sm90")
Traceback (most recent call last):
...
minductor.core.errors.UnknownTarget: [MD004] unknown target 'sm90'
  hint: did you mean 'sm_90'? The targets are: cpu, gfx942, interpret, sm_100, sm_80, sm_90.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from minductor.core.errors import UnknownTarget
from minductor.options import Options

KIB, MIB = 1024, 1024 * 1024
# The architectures of NVIDIA GPUs that are not in the table and have as much shared memory as those that are.
DATA_CENTRE = (87, 103, 110)
MAX_PROGRAMS = 2**31 - 1  # of one launch: a kernel numbers its programs along the first dimension of the grid only


@dataclass(frozen=True, slots=True)
class Machine:
    """How fast a GPU is, in seconds and bytes; `cost/seconds.py` computes with it."""

    bandwidth: float  # bytes a second between main memory and the processor, as a copy reaches it
    cache_bandwidth: float  # bytes a second from the second-level cache
    latency: float  # seconds from a load to its value, from main memory
    cache_latency: float  # the same from the second-level cache, while others wait for main memory
    near_latency: float  # the same from the second-level cache, where all data fit it
    operations: float  # simple operations a second, of all multiprocessors
    matrix: float  # operations a second of the matrix units, on 16-bit values; half as many on values twice as wide
    launch: float  # seconds of the launch of a kernel
    program: float  # seconds from the end of a program to the first load of the next one
    join: float  # seconds of a reduction over the threads of a program; times `crossing` of its warps
    sector: float  # seconds for each piece of memory of less than 32 bytes, on all multiprocessors
    access: float  # seconds of a load or store of one thread, on all multiprocessors
    exchange: float  # seconds for each result of a reduction that moves to another thread, on all multiprocessors
    atomic: float  # seconds of an atomic operation on an element on which all programs do one
    resident_threads: int  # threads that one multiprocessor runs at once
    resident_programs: int  # programs that one multiprocessor runs at once


# An H200. Fitted to half of the kernels measured on an H100, which has the same multiprocessors, and rounded, but for
# the bandwidth (benchmarks/cost_model.md). Its decisions serve an H100 as well, whose slower memory hides more of the
# rest. `atomic` is not fitted: since Kepler (its white paper) such operations come one a clock, and 1e-9 is two clocks.
# The machines below follow from it by the bandwidths and rates of their data sheets.
HOPPER = Machine(
    bandwidth=4.16e12,
    cache_bandwidth=1.2e13,
    latency=0.3e-6,
    cache_latency=0.25e-6,
    near_latency=0.13e-6,
    operations=2.4e13,
    matrix=4e14,
    launch=2e-6,
    program=0.25e-6,
    join=0.3e-6,
    sector=8.7e-12,
    access=3.5e-13,
    exchange=4e-11,
    atomic=1e-9,
    resident_threads=2048,
    resident_programs=32,
)
AMPERE = replace(HOPPER, bandwidth=1.7e12, cache_bandwidth=8e12, operations=1.5e13, matrix=1.5e14)  # A100 of 80 GB
BLACKWELL = replace(HOPPER, bandwidth=7e12, cache_bandwidth=2e13, operations=3e13, matrix=1e15)  # B200
CDNA3 = replace(HOPPER, bandwidth=4.3e12, cache_bandwidth=1.5e13, operations=6e13, matrix=4e14)  # MI300X
NOMINAL = HOPPER  # of a target that states no machine


class CpuMachine(NamedTuple):
    """How fast a CPU is, in seconds and bytes; `cost/cpu_seconds.py` computes with it.

    It is one nominal machine: an x86 server core with 512-bit instructions, 16 of which share a cache. The sizes are
    those of a Zen 4 core; the other numbers were fitted to kernels measured on one (benchmarks/cost_model.md).
    """

    first_bytes: int = 32 * KIB  # of the first-level cache of a core
    second_bytes: int = 1024 * KIB  # of the second-level cache of a core
    third_bytes: int = 16 * MIB  # of the third-level cache, which all cores share
    vector_bytes: int = 32  # of a vector that one simple operation computes
    second_line: float = 6e-10  # seconds in which a core takes a line of 64 bytes from the second-level cache
    third_line: float = 1.6e-10  # the same from the third-level cache
    memory_line: float = 1.8e-9  # the same from main memory
    third_cores: float = 12.0  # cores that use up the bandwidth of the third-level cache
    memory_cores: float = 6.0  # cores that use up the bandwidth of main memory
    third_jump: float = 1.2e-9  # seconds more where an access goes on at another place of the third-level cache
    memory_wait: float = 3e-9  # seconds more for a line of main memory that is not fetched ahead
    memory_gather: float = 3.7e-8  # seconds more for an instruction that gathers from main memory
    ahead_bytes: int = 8 * KIB  # of a run through main memory, before the core fetches ahead
    conflict: float = 3e-9  # seconds more where such places are so far apart that few sets of the cache hold them
    operation: float = 1.5e-10  # seconds of a simple operation on a vector
    scalar: float = 1e-10  # seconds of a simple operation on a scalar
    integer_division: float = 10.0  # operations of dividing an integer, which no vector instruction does
    # operations that a vector loop takes for each element whose place is computed, and in a kernel with reductions for
    # each that is not beside the one before it
    gather: float = 1.4
    narrow_gather: float = 7.5  # the same for an element of one or two bytes, which no instruction gathers
    gathering: float = 3.0  # times as long other operations take beside a gather, which fills the core's queue
    strided: float = 0.7  # the same for each element that is not beside the one before it
    special: float = 4.0  # times as long as one vector takes a special function of a scalar
    # what functions of a vector loop that wait for each other take more, for each doubling of their number
    waiting: float = 0.7
    chain: float = 7.0  # operations for which a sum of one accumulator waits at each element
    loop: float = 6e-9  # seconds in which a vector loop starts
    ragged: float = 1.6e-8  # seconds more where the elements do not fill the lanes of a reduction
    join: float = 4e-9  # seconds in which the lanes of a reduction are joined
    region: float = 3e-6  # seconds in which 16 threads start and are joined
    launch: float = 0.5e-6  # seconds of the launch of a kernel
    norm: float = 2.0  # see Cost


NOMINAL_CPU = CpuMachine()
FEW_PER_THREAD = 2  # values of a thread in a tile that `tile_values` made smaller
# Rows of a GPU, in elements: the longest that a program holds in registers, since those of a multiprocessor hold no
# longer one; the most of it for each thread; and, where a number of warps walks a row, of each block for each thread.
LONGEST_HELD, MOST_HELD, WALKED = 1 << 16, 64, 16
WARP_ROW = 256  # elements of a row that a warp loads at once, if they have 16 bits


@dataclass(frozen=True, slots=True)
class Target:
    """One machine: sizes and capabilities that decide how kernels are written for it.

    A size is 0 if the machine has no such thing, or if generated text must not depend on it. "Program" is Triton's
    word for what CUDA calls a thread block.
    """

    name: str
    kind: str  # the backend that compiles for it: "cpu", "interpret", "cuda", "hip" or a registered one
    device: str = "cpu"  # the type of torch.device whose memory its kernels work on
    arch: str = ""
    # Memory, in bytes.
    l2_bytes: int = 0
    shared_memory: int = 0  # the most that one program may use
    cached_row_bytes: int = 0  # a row up to this size is still in the cache when a kernel reads it a second time
    # A CPU's `vector_bytes` is the number of bytes in the lanes of a reduction, not the width of its registers. It
    # decides the bits of a result, so that every CPU gives the same.
    vector_bytes: int = 0
    multiprocessors: int = 0
    registers: int = 0  # 32-bit registers of one multiprocessor
    thread_registers: int = 0  # the most 32-bit registers of one thread
    warp_size: int = 0  # threads of a warp
    max_threads: int = 0  # of one program
    max_programs: int = 0  # of one launch
    # Limits of the blocks that one program of a GPU computes at once, in values of each operation.
    max_tile_values: int = 1024  # where nothing is reduced
    max_persistent_row: int = 4096  # a persistent reduction keeps a whole row; a longer row is reduced in a loop
    looped_block: int = 2048  # the part of a row that a looped reduction takes at a time
    columns_per_block: int = 32  # neighbouring columns that a reduction down columns takes at once
    values_per_thread: int = 8
    max_warps: int = 16  # of one program
    machine: Machine | None = None  # None: a GPU is priced as an H200, and notes say so
    cpu: CpuMachine = NOMINAL_CPU  # of a target for CPUs
    # Capabilities.
    has_descriptors: bool = False  # tensor descriptors (TMA)
    has_counters: bool = False  # launches pass a counter to kernels whose last program does more than the others
    has_fp8: bool = False  # conversions of float8_e4m3fn and float8_e5m2
    has_graphs: bool = False  # CUDA graphs; in the interpreter only with a graph driver that the caller gives
    has_tuning: bool = True  # variants and launches of a kernel can be measured against each other
    has_variants: bool = True  # a kernel may have variants, of which an option, the call or the tuner takes one
    # Operators that no kernel for this machine may contain: in any dtype ("zeta"), or in one ("atomic_add i8").
    lacks: frozenset[str] = frozenset()

    def lanes(self, itemsize: int) -> int:
        """The number of values in the lanes of a reduction; `itemsize` is the size of one value in bytes.

        >>> by_name("cpu").lanes(4), by_name("cpu").lanes(8)
        (64, 32)
        """
        return max(1, self.vector_bytes // itemsize)

    def tile_values(self, points: int | None) -> int:
        """The values of a tile of a kernel of so many points, or of an unknown number of them.

        The tiles of a kernel of few points are smaller, so that more multiprocessors share them.

        >>> gpu = by_name("sm_90")
        >>> gpu.tile_values(None), gpu.tile_values(1 << 20), gpu.tile_values(1 << 16), gpu.tile_values(64)
        (1024, 1024, 256, 256)
        """
        if points is None or not self.multiprocessors:
            return self.max_tile_values
        share = max(1, points // self.multiprocessors)
        return min(self.max_tile_values, max(self.max_tile_values // 4, 1 << (share.bit_length() - 1)))

    def is_here(self, device: str) -> bool:
        """Whether the target's kernels work on the memory of `device`, a name such as "cuda:1".

        >>> by_name("sm_90").is_here("cuda:1"), by_name("interpret").is_here("cpu")
        (True, True)
        """
        return device.partition(":")[0] == self.device

    def runs(self, other: Target) -> bool:
        """Whether this machine runs what is compiled for `other`: an NVIDIA GPU of its generation that is not newer.

        >>> of_capability(8, 9).runs(by_name("sm_80")), by_name("sm_90").runs(by_name("sm_80"))
        (True, False)
        """
        return self.kind == other.kind == "cuda" and (
            int(self.arch) // 10 == int(other.arch) // 10 and int(self.arch) >= int(other.arch)
        )

    @property
    def is_gpu(self) -> bool:
        return self.warp_size > 0


@dataclass(frozen=True, slots=True)
class Env:
    """The options and the target of one compile: all that a stage may know besides its value.

    `device`: the name of the GPU that kernels are launched on; for rewrites of a graph for the CPU, the CPU's maker.
    `software`: the packages whose version decides how fast they are, with their versions. Only learned choices and
    rewrites read these two. Behind the rewrites they are empty where nothing is launched on a GPU, so that a text for
    the CPU depends on neither.
    """

    options: Options
    target: Target
    device: str = ""
    software: tuple[tuple[str, str], ...] = ()

    @property
    def uses_hints(self) -> bool:
        """Whether a program may depend on the sizes of the first call.

        A hint may change the order of additions. On a CPU, and in deterministic mode, bits must not depend on them.
        """
        return self.target.is_gpu and not self.options.deterministic

    def without_graphs_of_mode(self, given: Collection[str], devices: Iterable[str]) -> Env:
        """This Env, without CUDA graphs that only a mode asks for if the graph has no input on an NVIDIA GPU.

        `given`: the names of the options that the user gave. `devices`: the types of the devices of the inputs.

        >>> Env(Options(cudagraphs=True), by_name("cpu")).without_graphs_of_mode((), ["cpu"]).options.cudagraphs
        False
        """
        is_asked = "cudagraphs" in given or self.target.has_graphs or not self.options.cudagraphs
        return self if is_asked or "cuda" in devices else replace(self, options=replace(self.options, cudagraphs=False))

    def supported(self) -> tuple[Env, tuple[str, ...]]:
        """This Env without the options that have no effect on its target, and a note about each of them.

        >>> Env(Options(autotune=True), TARGETS["gfx942"]).supported()[1]
        ('autotuning has no effect on gfx942',)
        """
        asked, target = self.options, self.target
        has_form = {"offsets": True, "pointer": target.is_gpu, "descriptor": target.has_descriptors}
        lacking = {
            "CUDA graphs have": ("cudagraphs", False, target.has_graphs or not asked.cudagraphs),
            "autotuning has": ("autotune", False, target.has_tuning or not asked.autotune),
            "forced variants have": ("variant", "", target.has_variants or not asked.variant),
            "variants by size have": ("size_hints", (), target.has_variants or not asked.size_hints),
            "the form of block accesses has": ("block_access", "offsets", has_form[asked.block_access]),
        }
        kept = {field: value for field, value, is_fine in lacking.values() if not is_fine}
        notes = tuple(f"{what} no effect on {target.name}" for what, row in lacking.items() if not row[-1])
        if asked.cudagraphs and target.has_graphs and (why := _why_uncaptured(asked)):
            kept["cudagraphs"] = False
            notes += (f"CUDA graphs have no effect with {why}",)
        return replace(self, options=replace(asked, **kept)) if kept else self, notes


def _why_uncaptured(options: Options) -> str:
    """The option with which no graph is captured, or "": the host reads something after each launch."""
    if options.nan_asserts:
        return "nan_asserts"
    if options.verify_memory:
        return "verify_memory"
    return "a wrapper in fx" if options.wrapper == "fx" else ""


# Functions and atomic operations that Triton has not, or has without NaN (the atomic maximum and minimum of floats).
_FUNCTIONS = (
    "digamma i0e i1e k0 k0e k1 k1e zeta chebyshev_t chebyshev_u chebyshev_v chebyshev_w hermite_h hermite_he laguerre_l"
    " legendre_p"
)
_NARROW = "bool i8 i16 u8 u16"
TRITON_LACKS = frozenset(
    (
        *_FUNCTIONS.split(),
        *("atomic_mul", "atomic_and", "atomic_or"),
        *(f"atomic_{kind} {dtype}" for kind in ("add", "max", "min") for dtype in _NARROW.split()),
        *(f"atomic_{kind} {dtype}" for kind in ("max", "min") for dtype in ("f16", "bf16", "f32", "f64")),
    )
)

# What the targets of Triton have in common; a row of TARGETS replaces what differs.
_GPU = Target(
    name="",
    kind="cuda",
    device="cuda",
    cached_row_bytes=48 * KIB,
    registers=65536,
    thread_registers=255,
    warp_size=32,
    max_threads=1024,
    max_programs=MAX_PROGRAMS,
    has_counters=True,
    has_graphs=True,
    lacks=TRITON_LACKS,
)
# The newer GPUs of NVIDIA, and Triton's interpreter.
_HOPPER = replace(_GPU, machine=HOPPER, shared_memory=227 * KIB, has_descriptors=True, has_fp8=True)

_ROWS = (
    # The CPU's target has no core count and no vector width, so that generated text depends on shapes and dtypes only.
    Target("cpu", "cpu", l2_bytes=1024 * KIB, cached_row_bytes=1024 * KIB, vector_bytes=256),
    # Triton's interpreter runs GPU kernels on CPU tensors, slowly and without libdevice. It takes more than a
    # millisecond for each program.
    replace(
        _HOPPER,
        name="interpret",
        kind="interpret",
        device="cpu",
        shared_memory=99 * KIB,
        multiprocessors=8,
        max_programs=4096,
    ),
    replace(
        _GPU, name="sm_80", arch="80", machine=AMPERE, l2_bytes=40 * MIB, shared_memory=163 * KIB, multiprocessors=108
    ),
    replace(_HOPPER, name="sm_90", arch="90", l2_bytes=50 * MIB, multiprocessors=132),
    replace(
        _HOPPER,
        name="sm_100",
        machine=BLACKWELL,
        arch="100",
        l2_bytes=126 * MIB,
        cached_row_bytes=96 * KIB,
        multiprocessors=148,
    ),
    replace(
        _GPU,
        name="gfx942",
        machine=CDNA3,
        kind="hip",
        arch="gfx942",
        l2_bytes=4 * MIB,
        shared_memory=64 * KIB,
        cached_row_bytes=96 * KIB,
        multiprocessors=304,
        registers=131072,
        thread_registers=512,
        has_graphs=False,
        warp_size=64,
        has_counters=False,
        has_tuning=False,
    ),
)
TARGETS: Mapping[str, Target] = MappingProxyType({target.name: target for target in _ROWS})


def of_capability(major: int, minor: int) -> Target | None:
    """The target of an NVIDIA GPU with compute capability `major`.`minor`.

    That is the newest target of the table that is not newer than the GPU, under the GPU's own name and architecture.
    None if the GPU is older than all of them.

    >>> of_capability(9, 0) is TARGETS["sm_90"], of_capability(7, 5)
    (True, None)
    >>> of_capability(8, 9).name, of_capability(8, 9).multiprocessors
    ('sm_89', 108)
    """
    known = [target for target in TARGETS.values() if target.kind == "cuda"]
    arch = 10 * major + minor
    older = [target for target in known if int(target.arch) <= arch]
    if not older:
        return None
    nearest = max(older, key=lambda target: int(target.arch))
    if int(nearest.arch) == arch:
        return nearest
    is_small = arch not in DATA_CENTRE
    shared = min(nearest.shared_memory, 99 * KIB) if is_small else nearest.shared_memory
    return replace(nearest, name=f"sm_{arch}", arch=str(arch), shared_memory=shared)


def by_name(name: str, targets: Mapping[str, Target] = TARGETS) -> Target:
    """The target called `name` in `targets`. Raises UnknownTarget, with the names that exist."""
    if not isinstance(name, str) or name not in targets:
        raise UnknownTarget(name, targets)
    return targets[name]
