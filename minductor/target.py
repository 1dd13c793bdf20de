"""What a program is compiled for: named machines as data, the same on every host.

Takes a name. Gives a frozen `Target`, and with the options the `Env` that every stage gets. Refuses to probe: what this
machine has is runtime's question, and no generated text may depend on it.

>>> by_name("sm_90").warp
32
>>> by_name("sm90")
Traceback (most recent call last):
...
minductor.core.errors.UnknownTarget: [MD004] unknown target 'sm90'
  hint: did you mean 'sm_90'? The targets are: cpu, gfx942, interpret, sm_100, sm_80, sm_90.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from minductor.core.errors import UnknownTarget
from minductor.options import Options

KIB = 1024
# NVIDIA GPUs beside those of the table that have as much shared memory as these
DATA_CENTRE = (87, 103, 110)
MAX_PROGRAMS = 2**31 - 1  # of the first dimension of a launch, which is all that a kernel's programs are numbered by


@dataclass(frozen=True, slots=True)
class Target:
    """One machine. A size that does not apply, or that text must not depend on, is 0."""

    name: str
    kind: str  # the backend that serves it: "cpu", "interpret", "cuda", "hip" or a registered one
    device: str = "cpu"  # the type of device, as torch names it, whose memory its kernels work on
    arch: str = ""
    # Memory, in bytes.
    l2_bytes: int = 0
    shared_memory: int = 0  # the most that one program may ask for
    row_bytes: int = 0  # of a row that is walked over again, what a cache has kept: on a GPU one program's share
    # Width. On a CPU `vector_bytes` is the size of a reduction's lanes: it fixes the bits, so every CPU has the same.
    vector_bytes: int = 0
    multiprocessors: int = 0
    registers: int = 0  # 32-bit registers of one multiprocessor
    thread_registers: int = 0  # the most of them that one thread may have
    warp: int = 0
    max_threads: int = 0  # of one program
    max_programs: int = 0  # of one launch
    # The most that one program of a GPU takes at once.
    tile_values: int = 1024  # of each op, where nothing is reduced
    held_row: int = 4096  # values of a row that it holds whole
    walked_row: int = 2048  # values of one block of a longer row
    columns: int = 32  # contiguous ones that it joins
    thread_values: int = 8  # of each op, in one thread
    max_warps: int = 16
    # Capabilities.
    has_descriptors: bool = False
    has_fp8: bool = False  # conversions of float8_e4m3fn and float8_e5m2
    has_tuning: bool = True  # variants and launches of a kernel are measured against each other
    # Operators that kernels of this machine are not written with, in any dtype ("zeta") or in one ("atomic_add i8").
    lacks: frozenset[str] = frozenset()

    def lanes(self, itemsize: int) -> int:
        """How many values of a size the lanes of a reduction hold.

        >>> by_name("cpu").lanes(4), by_name("cpu").lanes(8)
        (64, 32)
        """
        return max(1, self.vector_bytes // itemsize)

    def is_here(self, device: str) -> bool:
        """Whether its kernels work on the memory of a device, as torch names it.

        >>> by_name("sm_90").is_here("cuda:1"), by_name("interpret").is_here("cpu")
        (True, True)
        """
        return device.partition(":")[0] == self.device

    def runs(self, other: Target) -> bool:
        """Whether this GPU runs what is compiled for another one: an older one of the same generation.

        >>> of_capability(8, 9).runs(by_name("sm_80")), by_name("sm_90").runs(by_name("sm_80"))
        (True, False)
        """
        return self.kind == other.kind == "cuda" and (
            int(self.arch) // 10 == int(other.arch) // 10 and int(self.arch) >= int(other.arch)
        )

    @property
    def is_gpu(self) -> bool:
        return self.warp > 0


@dataclass(frozen=True, slots=True)
class Env:
    """All that a stage may know beside its value."""

    options: Options
    target: Target

    def supported(self) -> tuple[Env, tuple[str, ...]]:
        """Without what the options ask for and the target does not have, and a note of each such request.

        >>> Env(Options(autotune=True), TARGETS["gfx942"]).supported()[1]
        ('autotuning has no effect on gfx942',)
        """
        asked, target = self.options, self.target
        has_form = {"offsets": True, "pointer": target.is_gpu, "descriptor": target.has_descriptors}
        lacking = {
            "CUDA graphs have": ("cudagraphs", False, not asked.cudagraphs),  # nothing captures a partition
            "autotuning has": ("autotune", False, target.has_tuning or not asked.autotune),
            "the form of block accesses has": ("block_access", "offsets", has_form[asked.block_access]),
        }
        kept = {field: value for field, value, is_fine in lacking.values() if not is_fine}
        notes = tuple(f"{what} no effect on {target.name}" for what, row in lacking.items() if not row[-1])
        return replace(self, options=replace(asked, **kept)) if kept else self, notes


# What Triton has no function for. Its atomic extremes of floats do not know NaN, and it has none of a "set".
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

# The CPU has no core count and no vector width of its own: the text depends on shapes and dtypes only.
TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "cpu": Target(
            name="cpu",
            kind="cpu",
            l2_bytes=1024 * KIB,
            row_bytes=1024 * KIB,
            vector_bytes=256,
            has_tuning=False,
        ),
        # Triton's interpreter: GPU kernels on CPU tensors, slow, and without libdevice.
        "interpret": Target(
            name="interpret",
            kind="interpret",
            shared_memory=99 * KIB,
            row_bytes=48 * KIB,
            multiprocessors=8,
            registers=65536,
            thread_registers=255,
            warp=32,
            max_threads=1024,
            max_programs=4096,  # each takes more than a millisecond
            has_descriptors=True,
            has_fp8=True,
            lacks=TRITON_LACKS,
        ),
        "sm_80": Target(
            name="sm_80",
            kind="cuda",
            device="cuda",
            arch="80",
            l2_bytes=40 * KIB * KIB,
            shared_memory=163 * KIB,
            row_bytes=48 * KIB,
            multiprocessors=108,
            registers=65536,
            thread_registers=255,
            warp=32,
            max_threads=1024,
            max_programs=MAX_PROGRAMS,
            lacks=TRITON_LACKS,
        ),
        "sm_90": Target(
            name="sm_90",
            kind="cuda",
            device="cuda",
            arch="90",
            l2_bytes=50 * KIB * KIB,
            shared_memory=227 * KIB,
            row_bytes=48 * KIB,
            multiprocessors=132,
            registers=65536,
            thread_registers=255,
            warp=32,
            max_threads=1024,
            max_programs=MAX_PROGRAMS,
            lacks=TRITON_LACKS,
            has_descriptors=True,
            has_fp8=True,
        ),
        "sm_100": Target(
            name="sm_100",
            kind="cuda",
            device="cuda",
            arch="100",
            l2_bytes=126 * KIB * KIB,
            shared_memory=227 * KIB,
            row_bytes=96 * KIB,
            multiprocessors=148,
            registers=65536,
            thread_registers=255,
            warp=32,
            max_threads=1024,
            max_programs=MAX_PROGRAMS,
            lacks=TRITON_LACKS,
            has_descriptors=True,
            has_fp8=True,
        ),
        "gfx942": Target(
            name="gfx942",
            kind="hip",
            device="cuda",
            arch="gfx942",
            l2_bytes=4 * KIB * KIB,
            shared_memory=64 * KIB,
            row_bytes=96 * KIB,
            multiprocessors=304,
            registers=131072,
            thread_registers=512,
            warp=64,
            max_threads=1024,
            max_programs=MAX_PROGRAMS,
            lacks=TRITON_LACKS,
            has_tuning=False,
        ),
    }
)


def of_capability(major: int, minor: int) -> Target | None:
    """The machine for a GPU of NVIDIA's that is here: the nearest of the table that is not newer, as that one.

    None for one that is older than all of them.

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
    """The target of that name; registered backends bring their own table."""
    if not isinstance(name, str) or name not in targets:
        raise UnknownTarget(name, targets)
    return targets[name]
