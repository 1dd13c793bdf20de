"""The options of a compile: torch.compile(mode=, options=) and the environment, read once.

Takes a mode, a mapping of options and an environment. Gives a frozen `Options`, whose `fingerprint()` goes into the
store's key. Refuses unknown options, modes and values, with a hint that names the nearest known one; an option that
was renamed is refused with its new name.

>>> Options.parse(options={"precision": "eager"}, environ={}).fingerprint()
"autotune=False block_access='offsets' cudagraphs=False deterministic=False events=False freeze=False fuse=True \
fuse_random=False inplace=True loop_order=True matmul='auto' matmul_precision='ieee' max_live_bytes=0 \
nan_asserts=False precision='eager' provenance=1 reuse_storage=True rewrites='' sanitize=False \
size_hints=() target='' variant='' verify_memory='' wrapper='python'"
>>> Options.parse(mode="max-autotune", options={"fuse": False}, environ={}).autotune
True
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeAlias, cast

from minductor.core.errors import BadArgument, BadOptionValue, UnknownMode, UnknownOption, suggestion

Value: TypeAlias = "bool | int | float | str | tuple[Any, ...]"

# No mode asks for CUDA graphs before they have been run on a GPU; the option does.
MODES: Mapping[str, Mapping[str, Value]] = MappingProxyType(
    {
        "default": {},
        "reduce-overhead": {"cudagraphs": True},
        "max-autotune": {"autotune": True, "cudagraphs": True},
        "max-autotune-no-cudagraphs": {"autotune": True},
    }
)

# Old names of options: the error for each names the new one.
RENAMED: Mapping[str, str] = MappingProxyType({"held_bytes": "max_live_bytes", "reuse": "reuse_storage"})

# Names of recipes in `minductor/passes/schedule/`: for GPUs, then for CPUs.
RECIPES = (
    *(
        "persistent",
        "online",
        "looped",
        "unrolled",
        "columns64",
        "columns64_long",
        "columns64_pipelined",
        "columns128",
        "square",
        "square64",
        "product",
    ),
    *("persistent1", "persistent2", "persistent4", "persistent8", "persistent16", "persistent32"),
    *(
        "looped16",
        "looped32",
        "online16",
        "online32",
        "rows_beside_columns",
        "rows_beside_columns8",
        "rows_beside_columns16",
    ),
    *("rows_beside_columns32", "rows_beside_columns8_pipelined", "rows_beside_columns16_pipelined"),
    "rows_beside_columns32_pipelined",
    *("aligned1", "aligned2", "aligned4", "aligned8", "aligned16", "aligned32"),
    *("elements", "blocks", "transposed", "shared_indices", "scan", "scatter", "scatter_blocks"),
    *("gathers_first", "gathers_first_blocks", "scalar_elements", "scalar_blocks", "scalar_transposed"),
    *("strips", "strips_blocks", "strips_rows"),
    *("scalar_shared_indices", "scalar_scatter", "scalar_scatter_blocks", "short_axis", "short_axis_blocks"),
    *("rows", "across_rows", "rows_in_parts", "rows_and_columns", "side_by_side", "two_steps", "two_steps_in_parts"),
    *("columns", "columns_in_parts", "transposed_columns", "phases"),
)

# Names that the option `variant` takes beside those of recipes: a reduction or scan in one kernel or in parts, and a
# matrix product by generated code or by the library.
VARIANTS = (*RECIPES, "whole", "cut", "native", "extern")

ENVIRONMENT: Mapping[str, str] = MappingProxyType({"MINDUCTOR_CACHE_DIR": "cache_dir", "MINDUCTOR_TRACE": "trace"})


class OptionRule(NamedTuple):
    """What one option accepts, and what it is for.

    `allowed` lists the accepted values; empty means any value of `type`. The text of the value matches `pattern`, if
    there is one. `changes_text` says whether two values of the option can give two generated texts; if so, the value is
    part of the store's key. With `freeze` the option takes more kinds of values, such as mappings: `freeze` gives the
    value as text or tuples, which can be hashed and compared, or None if it is not accepted. `takes` then says what is.
    """

    type: type[bool] | type[int] | type[float] | type[str] | type[tuple[Any, ...]]
    docs: str
    allowed: tuple[Value, ...] = ()
    changes_text: bool = True
    pattern: str = ""
    freeze: Callable[[object], Value | None] | None = None
    takes: str = ""

    def expected(self) -> str:
        """What the option accepts, in words, for an error."""
        if self.takes:
            return self.takes
        if self.allowed:
            return "one of " + ", ".join(repr(value) for value in self.allowed)
        return f"{'an' if self.type is int else 'a'} {self.type.__name__}" + (f" ({self.docs})" if self.pattern else "")

    def is_accepted(self, value: object) -> bool:
        """Whether the option accepts `value`."""
        if self.freeze is not None:
            return self.freeze(value) is not None
        if type(value) is not self.type:  # isinstance would let True pass for an int
            return False
        if self.allowed:
            return value in self.allowed
        return not self.pattern or re.fullmatch(self.pattern, str(value)) is not None


def _frozen_variant(value: object) -> Value | None:
    """The value of `variant` as text, or as pairs of a kernel's name and its variant, in order of name.

    >>> _frozen_variant({"k3": "looped", "k1": "cut"}), _frozen_variant("loped")
    ((('k1', 'cut'), ('k3', 'looped')), None)
    """
    if isinstance(value, str):
        return value if value in ("", *VARIANTS) else None
    pairs = _pairs(value)
    if pairs is None or not all(isinstance(name, str) and taken in VARIANTS for name, taken in pairs):
        return None
    return tuple(sorted(pairs))


def _frozen_hints(value: object) -> Value | None:
    """The value of `size_hints` as numbers in order, or as pairs of a symbol's name and such numbers.

    >>> _frozen_hints((64, 4096, 64)), _frozen_hints({"s0": 8}), _frozen_hints((0,))
    ((64, 4096), (('s0', (8,)),), None)
    """
    if isinstance(value, list | tuple) and not any(isinstance(item, tuple) for item in cast("list[Any]", value)):
        return _sizes(value)
    pairs = _pairs(value)
    found = {name: _sizes(sizes if isinstance(sizes, list | tuple) else (sizes,)) for name, sizes in pairs or ()}
    if not found or not all(isinstance(name, str) and sizes for name, sizes in found.items()):
        return None
    return tuple(sorted(found.items()))


def _sizes(value: Any) -> tuple[int, ...] | None:
    """Positive integers in order, each once; None if one of them is something else."""
    is_right = all(type(size) is int and size > 0 for size in value)
    return tuple(sorted(set(value))) if is_right else None


def _pairs(value: object) -> list[tuple[Any, Any]] | None:
    """The items of a mapping, or of what such a mapping was frozen to."""
    if isinstance(value, Mapping):
        return list(cast("Mapping[Any, Any]", value).items())
    is_frozen = isinstance(value, tuple) and all(isinstance(i, tuple) and len(i) == 2 for i in cast("Any", value))
    return list(cast("Any", value)) if is_frozen else None


def _option(default: Value, docs: str, **limits: Any) -> Any:  # as dataclasses.field itself is declared
    """A field of the default's type. `limits` are other arguments of OptionRule."""
    return field(default=default, metadata={"rule": OptionRule(type(default), docs, **limits)})


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one compile. README.md lists them; each field's rule says what values it accepts.

    Args:
        extra: the options of a backend, as (full name, value) in order of name, such as ("toy.unroll", 2). The backend
            checks them when it is known.
        other fields: see the rule of each field.

    Raises:
        BadOptionValue: a value is not what the field's rule accepts.
    """

    target: str = _option("", "the name of the target to compile for; empty: the device of the tensors decides")
    wrapper: str = _option("python", "the language of the wrapper", allowed=("python", "cpp", "fx"))
    precision: str = _option(
        "fast",
        "fast: bf16 and fp16 values are float32 inside a kernel; eager: they are rounded after each operation",
        allowed=("fast", "eager"),
    )
    fuse: bool = _option(True, "False: each computed buffer has a kernel of its own")
    loop_order: bool = _option(True, "also fuse kernels that match only when a loop is split or unrolled")
    fuse_random: bool = _option(
        False, "True: kernels draw random numbers by Philox; False: they are eager's own, bit for bit"
    )
    rewrites: str = _option(
        "",
        "which rewrites of the graph apply: those behind + are on, those behind - off, as -attention,+pad_products; "
        "all stands for every rewrite",
        pattern=r"|\s*[+-]\w+(\s*,\s*[+-]\w+)*\s*",
        takes="names of rewrites, each behind + or -, with commas between, as -attention,+pad_products",
    )
    freeze: bool = _option(
        False,
        "True: parameters and buffers are constants of an inference graph; what depends on them alone is computed once",
    )
    matmul: str = _option(
        "auto",
        "who computes matrix products on GPUs; native: generated kernels; extern: the library; auto: generated "
        "kernels where they save time",
        allowed=("auto", "native", "extern"),
    )
    matmul_precision: str = _option(
        "ieee",
        "the format that generated matrix products round float32 operands to; torch's own flag sets it too",
        allowed=("ieee", "tf32"),
    )
    block_access: str = _option(
        "offsets",
        "how GPU kernels address a block of memory, where the form fits: sums of offsets, tl.make_block_ptr "
        "(Triton before 3.9), or tensor descriptors",
        allowed=("offsets", "pointer", "descriptor"),
    )
    max_live_bytes: int = _option(
        0, "fusion may keep at most this many bytes of intermediate results alive; 0 means no limit", pattern=r"\d+"
    )
    reuse_storage: bool = _option(True, "False: no buffer takes over the storage of a buffer that is no longer needed")
    inplace: bool = _option(True, "False: no kernel writes its result over an operand that nothing reads afterwards")
    verify_memory: str = _option(
        "",
        "compare the memory of each call with the plan; assert: raise an error where they differ; log: log it",
        allowed=("", "assert", "log"),
    )
    nan_asserts: bool = _option(
        False, "a kernel that stores NaN or infinity, and reads none, is an error with the user's line; waits for GPUs"
    )
    variant: str | tuple[tuple[str, str], ...] = _option(
        "",
        "which of its variants a kernel is, where it has that one: the name of a recipe, whole or cut, native or "
        "extern; a mapping says it for kernels by name; empty: the one that is estimated to be fastest",
        freeze=_frozen_variant,
        takes=f"one of {', '.join(map(repr, VARIANTS))}, or a mapping of kernels' names to these",
    )
    size_hints: tuple[Any, ...] = _option(
        (),
        "sizes for each of which a graph with symbolic sizes has a variant of its kernels; a call takes the nearest",
        freeze=_frozen_hints,
        takes="positive integers for all symbols, as (64, 4096), or by the name of a symbol, as {'s0': (64, 4096)}",
    )
    autotune: bool = _option(False, "measure every tunable choice on this machine and keep the fastest")
    deterministic: bool = _option(
        False, "no choice that changes bits is made by measured time; torch's own switch sets it too"
    )
    provenance: int = _option(
        1,
        "what generated texts say of where they come from; 0: nothing; 1: comments with the ATen nodes of each launch, "
        "call and kernel; 2: provenance.json also has the operations that each line of a kernel computes",
        allowed=(0, 1, 2),
    )
    events: bool = _option(False, "the compiled graph records its launches, allocations and frees")
    sanitize: bool = _option(False, "build kernels with the address and undefined sanitisers")
    fallback: str = _option(
        "allow", "error: a graph that would run in eager is an error", allowed=("allow", "error"), changes_text=False
    )
    cudagraphs: bool = _option(False, "replay launches as CUDA graphs, on NVIDIA GPUs")
    verify: bool = _option(False, "check the rules of the IR after each stage", changes_text=False)
    compiler_timeout: int = _option(
        300,
        "seconds that the C++ compiler may take for a graph, and that minductor waits for another process which "
        "compiles the same graph",
        changes_text=False,
        pattern=r"[1-9]\d*",
    )
    trace: str = _option(
        "",
        "what to show of each stage: a level from 0 to 4, dir:PATH or html:PATH",
        changes_text=False,
        pattern=r"|[0-4]|(dir|html):.+",
    )
    cache_dir: str = _option("", "the folder of the store; empty: the user's cache folder", changes_text=False)
    extra: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        for name, rule in OPTION_RULES.items():
            value = getattr(self, name)
            checked = _checked(name, value, rule)
            if checked is not value:
                object.__setattr__(self, name, checked)  # the frozen form

    @classmethod
    def parse(
        cls,
        mode: str | None = None,
        options: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """The options of one call. An option overrides the mode, and the mode overrides the environment.

        Args:
            mode: a key of MODES, as torch.compile(mode=...) takes it; None means "default".
            options: values by option name, as torch.compile(options=...) takes them. A name with a dot belongs to the
                backend before the dot.
            environ: environment variables by name; None means os.environ.

        Returns:
            The frozen options.

        Raises:
            UnknownMode: MODES has no such mode.
            UnknownOption: no option has this name; the hint says what an old name was renamed to.
            BadOptionValue: an option does not accept its value.
            BadArgument: `environ` or `options` is not a mapping.
        """
        if mode is not None and (not isinstance(mode, str) or mode not in MODES):
            raise UnknownMode(mode, MODES)
        surroundings = os.environ if environ is None else environ
        if not isinstance(surroundings, Mapping):
            raise BadArgument("environ of Options.parse", environ, "a mapping of names to text, as os.environ is")
        values: dict[str, object] = {}
        for variable, name in ENVIRONMENT.items():
            if variable in surroundings:
                values[name] = _checked(name, surroundings[variable], OPTION_RULES[name], origin=variable)
        values.update(MODES[mode or "default"])
        extra: dict[str, Value] = {}
        for key, value in mapping_of(options).items():
            name = str(key)  # torch takes a key of any type
            if "." in name:
                extra[name] = _checked_extra(name, value)
            elif name in OPTION_RULES:
                values[name] = value
            else:
                raise UnknownOption(name, OPTION_RULES, renamed_to=RENAMED.get(name, ""))
        return cls(**cast("dict[str, Any]", values), extra=tuple(sorted(extra.items())))

    def fingerprint(self) -> str:
        """The options that can change a generated text, as one line for the store's key.

        Returns:
            `name=value` for each, in order of name; then the options of a backend.
        """
        kept = [f"{name}={getattr(self, name)!r}" for name, rule in sorted(OPTION_RULES.items()) if rule.changes_text]
        return " ".join([*kept, *(f"{name}={value!r}" for name, value in self.extra)])

    def variant_of(self, kernel: str) -> str:
        """The variant that the option `variant` forces for one kernel.

        Args:
            kernel: the name of a kernel in the program, such as "k3".

        Returns:
            The name of the variant; "" if the option forces none.
        """
        return self.variant if isinstance(self.variant, str) else dict(self.variant).get(kernel, "")

    @property
    def backend_options(self) -> Mapping[str, Value]:
        """The backend's own options by full name. While the backend's functions run, each of its options is here."""
        return dict(self.extra)


def mapping_of(options: object) -> Mapping[str, object]:
    """`options` as a mapping; an empty one for None. Raises BadArgument for anything else."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise BadArgument("options", options, "a mapping of options' names to values, as {'fuse': False}")
    return cast("Mapping[str, object]", options)


def check_extra(options: Options, rules: Mapping[str, OptionRule]) -> None:
    """Raises if an option of a backend has no rule among `rules`, or its rule does not accept the value."""
    for name, value in options.extra:
        if name not in rules:
            raise UnknownOption(name, [*OPTION_RULES, *rules])
        _checked(name, value, rules[name])


def _checked(name: str, value: object, rule: OptionRule, *, origin: str = "") -> Value:
    frozen = rule.freeze(value) if rule.freeze else value
    if frozen is None or not (rule.freeze or rule.is_accepted(value)):
        raise BadOptionValue(name, value, rule.expected(), origin=origin, meant=_meant(rule, value))
    return cast("Value", frozen)


def _meant(rule: OptionRule, value: object) -> str:
    """The text in a refused value that may be a misspelt variant; "" if there is none."""
    if rule.freeze is not _frozen_variant:
        return ""
    given = [value] if isinstance(value, str) else [taken for _, taken in _pairs(value) or ()]
    return next((suggestion(str(taken), VARIANTS) for taken in given if taken not in VARIANTS), "")


def _checked_extra(name: str, value: object) -> Value:
    if type(value) not in (bool, int, float, str):
        raise BadOptionValue(name, value, "a bool, an int, a float or a str")
    return cast("Value", value)


OPTION_RULES: Mapping[str, OptionRule] = MappingProxyType(
    {entry.name: entry.metadata["rule"] for entry in fields(Options) if "rule" in entry.metadata}
)
