"""What the user asks of a compile: torch.compile(mode=, options=) and the environment, read once.

Takes a mode, a mapping of options and an environment. Gives a frozen `Options`, whose `fingerprint()` goes into the
store's key. Refuses unknown keys, modes and values, and names what was probably meant.

>>> Options.parse(options={"precision": "eager"}, environ={}).fingerprint()
"autotune=False block_access='offsets' deterministic=False events=False fuse=True fuse_random=False held_bytes=0 \
inplace=True loop_order=True matmul='auto' matmul_precision='ieee' precision='eager' reuse=True sanitize=False \
target='' verify_memory='' wrapper='python'"
>>> Options.parse(mode="max-autotune", options={"cudagraphs": False}, environ={}).autotune
True
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Self, cast

from minductor.core.errors import BadArgument, BadOptionValue, UnknownMode, UnknownOption

Value = bool | int | float | str

MODES: Mapping[str, Mapping[str, Value]] = MappingProxyType(
    {
        "default": {},
        "reduce-overhead": {"cudagraphs": True},
        "max-autotune": {"autotune": True, "cudagraphs": True},
        "max-autotune-no-cudagraphs": {"autotune": True},
    }
)

ENVIRONMENT: Mapping[str, str] = MappingProxyType({"MINDUCTOR_CACHE_DIR": "cache_dir", "MINDUCTOR_TRACE": "trace"})


@dataclass(frozen=True, slots=True)
class OptionRule:
    """What one option takes: its type, its allowed values (none listed: any of the type), and what it is for."""

    type: type[bool] | type[int] | type[float] | type[str]
    docs: str
    allowed: tuple[Value, ...] = ()
    # Whether two values can give two generated texts; if so the value is part of the store's key.
    changes_text: bool = True
    pattern: str = ""

    def expected(self) -> str:
        if self.allowed:
            return "one of " + ", ".join(repr(value) for value in self.allowed)
        return f"{'an' if self.type is int else 'a'} {self.type.__name__}" + (f" ({self.docs})" if self.pattern else "")

    def is_accepted(self, value: object) -> bool:
        if type(value) is not self.type:  # isinstance would let True pass for an int
            return False
        if self.allowed:
            return value in self.allowed
        return not self.pattern or re.fullmatch(self.pattern, str(value)) is not None


def _option(default: Value, rule: OptionRule) -> Any:  # as dataclasses.field itself is declared
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one compile. Every field says in its rule whether it changes the generated text."""

    target: str = _option("", OptionRule(str, "the named target to compile for; empty: the device of the tensors"))
    wrapper: str = _option("python", OptionRule(str, "the language of the wrapper", allowed=("python", "cpp", "fx")))
    precision: str = _option(
        "fast",
        OptionRule(
            str,
            "fast: bf16 and fp16 stay in float32 inside a kernel; eager: rounded after each op",
            allowed=("fast", "eager"),
        ),
    )
    fuse: bool = _option(True, OptionRule(bool, "False: one kernel per computed buffer"))
    loop_order: bool = _option(True, OptionRule(bool, "join kernels that match only with split or unrolled loops"))
    fuse_random: bool = _option(
        False, OptionRule(bool, "random numbers inside kernels, by Philox; False: eager's own, bit for bit")
    )
    matmul: str = _option(
        "auto",
        OptionRule(
            str,
            "matrix products on GPUs; native: in generated kernels; extern: the library's; auto: native where it saves",
            allowed=("auto", "native", "extern"),
        ),
    )
    matmul_precision: str = _option(
        "ieee",
        OptionRule(
            str, "what float32 operands of native products are rounded to; torch's own flag", allowed=("ieee", "tf32")
        ),
    )
    block_access: str = _option(
        "offsets",
        OptionRule(
            str,
            "how kernels of a GPU spell blocks of memory, where they can: sums of offsets, tl.make_block_ptr (Triton "
            "before 3.9), or tensor descriptors",
            allowed=("offsets", "pointer", "descriptor"),
        ),
    )
    held_bytes: int = _option(
        0,
        OptionRule(
            int,
            "fusion has no kernel wait for more bytes of intermediate results than these; 0: no bound",
            pattern=r"\d+",
        ),
    )
    reuse: bool = _option(True, OptionRule(bool, "False: no buffer takes over the storage of a dead one"))
    inplace: bool = _option(True, OptionRule(bool, "False: no kernel writes over an operand that dies in it"))
    verify_memory: str = _option(
        "",
        OptionRule(
            str,
            "hold each call against the plan of its memory; assert: raise where it differs, log: say it",
            allowed=("", "assert", "log"),
        ),
    )
    autotune: bool = _option(False, OptionRule(bool, "try every tunable choice on the machine"))
    deterministic: bool = _option(
        False, OptionRule(bool, "no choice that affects bits depends on a clock; torch's own switch sets it too")
    )
    events: bool = _option(False, OptionRule(bool, "the compiled graph reports launches, allocations and frees"))
    sanitize: bool = _option(False, OptionRule(bool, "build kernels with the address and undefined sanitisers"))
    fallback: str = _option(
        "allow",
        OptionRule(str, "error: refuse what would run in eager", allowed=("allow", "error"), changes_text=False),
    )
    cudagraphs: bool = _option(False, OptionRule(bool, "replay launches as a CUDA graph", changes_text=False))
    verify: bool = _option(False, OptionRule(bool, "check the rules of the IR after each stage", changes_text=False))
    compiler_timeout: int = _option(
        300,
        OptionRule(
            int,
            "the seconds that the C++ compiler may take for a graph, and that another process which compiles the same "
            "graph is waited for",
            changes_text=False,
            pattern=r"[1-9]\d*",
        ),
    )
    trace: str = _option(
        "",
        OptionRule(
            str,
            "what to show of each stage: a level from 0 to 4, dir:PATH or html:PATH",
            changes_text=False,
            pattern=r"|[0-4]|(dir|html):.+",
        ),
    )
    cache_dir: str = _option("", OptionRule(str, "the folder of the store; empty: the user's", changes_text=False))
    # A backend's own options, "toy.field", in order of name; the backend checks them when it is known.
    extra: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        for name, rule in OPTION_RULES.items():
            _checked(name, getattr(self, name), rule)

    @classmethod
    def parse(
        cls,
        mode: str | None = None,
        options: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Environment, then mode, then options: what is nearer to the call wins, field by field."""
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
                raise UnknownOption(name, OPTION_RULES)
        return cls(**cast("dict[str, Any]", values), extra=tuple(sorted(extra.items())))

    def fingerprint(self) -> str:
        """The values that change generated text, in a fixed order, for the store's key."""
        kept = [f"{name}={getattr(self, name)!r}" for name, rule in sorted(OPTION_RULES.items()) if rule.changes_text]
        return " ".join([*kept, *(f"{name}={value!r}" for name, value in self.extra)])

    @property
    def own(self) -> Mapping[str, Value]:
        """The backend's own options by full name; while its parts run, all that its record has."""
        return dict(self.extra)


def mapping_of(options: object) -> Mapping[str, object]:
    """The options by name; nothing given is no options."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise BadArgument("options", options, "a mapping of options' names to values, as {'fuse': False}")
    return cast("Mapping[str, object]", options)


def check_extra(options: Options, rules: Mapping[str, OptionRule]) -> None:
    """Hold backends' own options against the rules of those that are named."""
    for name, value in options.extra:
        if name not in rules:
            raise UnknownOption(name, [*OPTION_RULES, *rules])
        _checked(name, value, rules[name])


def _checked(name: str, value: object, rule: OptionRule, *, origin: str = "") -> Value:
    if not rule.is_accepted(value):
        raise BadOptionValue(name, value, rule.expected(), origin=origin)
    return cast("Value", value)


def _checked_extra(name: str, value: object) -> Value:
    if type(value) not in (bool, int, float, str):
        raise BadOptionValue(name, value, "a bool, an int, a float or a str")
    return cast("Value", value)


OPTION_RULES: Mapping[str, OptionRule] = MappingProxyType(
    {entry.name: entry.metadata["rule"] for entry in fields(Options) if "rule" in entry.metadata}
)
