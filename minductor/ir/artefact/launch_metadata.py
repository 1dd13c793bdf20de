"""How each Triton kernel of a graph is launched, as data: the file `launches.json` beside the kernels' module.

Takes LaunchMetadata; gives their JSON, one launch a line. Takes that JSON; gives the LaunchMetadata back. Refuses text
that is no such JSON (ValueError or KeyError).

codegen/triton writes the file. The workers that compile or interpret kernels, the launchers of CUDA and of FX graphs,
`compile_only` and the pytest plugin read it.

>>> programs = ("s0", 3, "+", 4, "//")
>>> launch = LaunchMetadata("k_0", {"in0": "*fp32", "s0": "i64", "XBLOCK": "constexpr"}, programs, {"XBLOCK": 4}, 2)
>>> read_launches(print_launches([launch])) == (launch,)
True
>>> launch.name, list(launch.arguments)
('k_0', ['in0', 's0'])

Where choices are measured, a launch lists their options, and the launch of every config is derived from it:

>>> options, counted = {"warps": (2, 4), "XBLOCK": (4, 8)}, ("s0", "XBLOCK", "+", 1, "-", "XBLOCK", "//")
>>> tuned = LaunchMetadata("k_0", launch.parameters, programs, {"XBLOCK": 4}, 2, choices=options, grid=counted)
>>> other = tuned.configured({"warps": 4, "XBLOCK": 8})
>>> other.name, other.warps, other.blocks, other.programs
('k_0 warps=4 XBLOCK=8', 4, {'XBLOCK': 8}, ('s0', 8, '+', 1, '-', 8, '//'))
>>> tuned.config_of("XBLOCK=8"), tuned.config_of("XBLOCK=16")
({'warps': 2, 'XBLOCK': 8}, None)

Where the sizes of a call decide whether 32 bits hold the indices of a kernel, a launch has indices of 32 bits. The
launch for larger sizes is derived from it:

>>> kinds, most = {"in0": "*fp32", "s0": "i32", INDEX_BITS: "constexpr"}, ("s0", 1048576, "+")
>>> narrow = LaunchMetadata("k_0", kinds, programs, {INDEX_BITS: 32}, 2, greatest_index=most)
>>> narrow.wide().name, narrow.wide().parameters["s0"], narrow.wide().blocks
('k_0 INDEX_BITS=64', 'i64', {'INDEX_BITS': 64})
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

LAUNCHES = "launches.json"  # the file's name
# The name of a parameter behind the arguments: a tensor of int32, which are 0 before and after the launch, and how many
# there are. No two launches that may run at the same time are given the same one.
COUNTER, COUNTERS = "counter", 128
# The name of the constant that says of how many bits a kernel's indices are, where sizes decide that; and the largest
# index of 32 bits.
INDEX_BITS, MOST_IN_INT32 = "INDEX_BITS", 2**31 - 1
# The largest factor of a size that lets Triton load more elements at once: 16 bytes of the narrowest ones.
MULTIPLE = 16
# A whole number that a launch computes, in reverse Polish notation. An item is a constant, the name of an argument, or
# one of the operators "+", "-", "*", "//", "%", "min" and "max", which takes the two values before it.
Postfix: TypeAlias = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class LaunchMetadata:
    """One way to launch one kernel: the default one, or one that `configured` derived from it."""

    symbol: str  # the kernel's function in the module
    parameters: Mapping[str, str]  # of that function, in order: name -> Triton's type; "constexpr" for a constant
    programs: Postfix  # how many programs a launch has, from the arguments
    blocks: Mapping[str, int]  # the value of each constant: block sizes, and INDEX_BITS
    warps: int
    stages: int | None = None  # of software pipelining; None leaves the number to Triton
    registers: int | None = None  # the most of a thread; None leaves the number to the compiler
    variant: str = ""  # how the launch differs from the default one, such as "XBLOCK=512"; "" is the default
    # The options that may be measured, in ascending order, by "warps", "stages" or the name of a block parameter.
    choices: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    grid: Postfix = ()  # `programs` with block parameters in place of their sizes, if block sizes are among `choices`
    # What no index exceeds, from the arguments. A call for which it is above MOST_IN_INT32 takes the launch `wide()`.
    # () where indices have as many bits for all sizes.
    greatest_index: Postfix = ()
    # Powers of two of which the machine code takes sizes for multiples. Other calls take the launch `of_any_sizes()`.
    multiples: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def name(self) -> str:
        """The symbol and the variant: unique among the launches of a graph."""
        return f"{self.symbol} {self.variant}".strip()

    @property
    def config(self) -> dict[str, int]:
        """What this launch takes for each of its choices."""
        found = {"warps": self.warps, "stages": self.stages or 0, **self.blocks}
        return {name: found[name] for name in self.choices}

    def configured(self, config: Mapping[str, int]) -> LaunchMetadata:
        """The launch with these options of the choices; equal to this launch for its own `config`, but for choices."""
        blocks = {name: config.get(name, size) for name, size in self.blocks.items()}
        counted = tuple(config.get(item, item) if isinstance(item, str) else item for item in self.grid)
        return replace(
            self,
            programs=self.programs if config == self.config else counted or self.programs,
            blocks=blocks,
            warps=config.get("warps", self.warps),
            stages=config.get("stages", self.stages),
            variant=self.label(config),
            choices={},
            grid=(),
        )

    def of_any_sizes(self) -> LaunchMetadata:
        """The launch of machine code that takes no size for a multiple of anything."""
        return replace(self, multiples={}, variant=f"{self.variant} any sizes".strip(), choices={}, grid=())

    def wide(self) -> LaunchMetadata:
        """The launch with indices and sizes of 64 bits, where this one has indices of 32 bits; it takes any sizes."""
        kinds = {name: "i64" if kind == "i32" else kind for name, kind in self.parameters.items()}
        label = f"{self.variant} {INDEX_BITS}=64".strip()
        blocks = {**self.blocks, INDEX_BITS: 64}
        fixed = replace(self, choices={}, grid=(), greatest_index=(), multiples={})
        return replace(fixed, parameters=kinds, blocks=blocks, variant=label)

    def label(self, config: Mapping[str, int]) -> str:
        """How a config differs from this launch, such as "warps=8 XBLOCK=512"; "" if it does not."""
        return " ".join(f"{name}={config[name]}" for name, default in self.config.items() if config[name] != default)

    def config_of(self, label: str) -> dict[str, int] | None:
        """The config of a label; None if no options of this launch have such a label."""
        found = self.config
        for name, _, option in (part.partition("=") for part in label.split()):
            if not option.isdecimal() or int(option) not in self.choices.get(name, ()):
                return None
            found[name] = int(option)
        return found if self.label(found) == label else None

    @property
    def arguments(self) -> dict[str, str]:
        """The parameters that each call of the kernel passes: all but the counter and the constants."""
        return {name: kind for name, kind in self.parameters.items() if kind != "constexpr" and name != COUNTER}

    @property
    def pointers(self) -> int:
        """The number of tensors. Tensors are the first arguments."""
        return sum(kind.startswith("*") for kind in self.arguments.values())

    @property
    def has_counter(self) -> bool:
        """Whether the launch counts the programs that have ended, so that the last one finishes the kernel."""
        return COUNTER in self.parameters


def print_launches(launches: Iterable[LaunchMetadata]) -> str:
    """The launches as JSON, one a line."""
    return "[\n" + ",\n".join(json.dumps(asdict(launch)) for launch in launches) + "\n]\n"


def read_launches(text: str) -> tuple[LaunchMetadata, ...]:
    """The launches that were printed; none for the empty text, which a graph without Triton kernels has."""
    return tuple(_launch(row) for row in json.loads(text or "[]"))


def _launch(row: dict[str, Any]) -> LaunchMetadata:
    numbers: dict[str, tuple[int, ...]] = {name: tuple(options) for name, options in row.pop("choices").items()}
    counts: dict[str, Postfix] = {name: tuple(row.pop(name)) for name in ("programs", "grid", "greatest_index")}
    return LaunchMetadata(choices=numbers, **counts, **row)


def default_launches(text: str) -> dict[str, LaunchMetadata]:
    """The launch of each kernel, by symbol, from what `print_launches` gave."""
    return {launch.symbol: launch for launch in read_launches(text)}
