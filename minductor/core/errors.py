"""Every way to misuse minductor, one class each, with a code that stays the same for ever.

Takes the facts of one misuse. Gives an exception or a warning that says what happened, where, why, and what to do.
Refuses to decide whether something is an error: whoever raises it does.

>>> print(UnknownOption("fuze", ("fuse", "events")))
[MD001] unknown option 'fuze'
  hint: did you mean 'fuse'? The options are: events, fuse.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar


def suggestion(name: str, known: Iterable[str]) -> str:
    """The sentence "did you mean 'x'? ", or nothing when no known name is near.

    >>> suggestion("precison", ["precision", "fuse"])
    "did you mean 'precision'? "
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? " if near else ""


def _choices(name: str, plural: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return f"{suggestion(name, names)}The {plural} are: {', '.join(names) or 'none'}."


def _shortened(value: object) -> str:
    """A value's text in one line of bounded length.

    >>> _shortened("a" * 99)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..."
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


class MinductorError(Exception):
    """The class of all errors of minductor: `except minductor.MinductorError` catches each of them.

    Args:
        what: what happened, as one line.
        where: the user's line or the environment variable that it is about.
        why: the reason.
        hint: what to do about it.
    """

    code: ClassVar[str] = "MD000"

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        rows = (("at", self.where), ("why", self.why), ("hint", self.hint))
        return "\n".join([f"[{self.code}] {self.what}", *(f"  {label}: {text}" for label, text in rows if text)])

    def __reduce__(self) -> tuple[object, ...]:
        # BaseException would call the class with `args`, which are not what the constructors below take.
        return _rebuild, (type(self), dict(self.__dict__))


def _rebuild(kind: type[MinductorError], state: Mapping[str, object]) -> MinductorError:
    error = kind.__new__(kind, state["what"])
    error.__dict__.update(state)
    return error


class MinductorWarning(MinductorError, UserWarning):
    """The class of all warnings of minductor: the compile went on, at the price that the text names."""

    code: ClassVar[str] = "MD900"


# What the user asks for.


class UnknownOption(MinductorError, ValueError):
    """A key in torch.compile(options=...) that is no option of minductor or of the backend in use."""

    code: ClassVar[str] = "MD001"

    def __init__(self, name: str, known: Iterable[str], *, renamed_to: str = "") -> None:
        hint = f"it was renamed to {renamed_to!r}" if renamed_to else _choices(name, "options", known)
        super().__init__(f"unknown option {name!r}", hint=hint)
        self.name = name


class BadOptionValue(MinductorError, ValueError):
    """An option whose value has the wrong type, or is not among the allowed ones."""

    code: ClassVar[str] = "MD002"

    def __init__(self, name: str, value: object, expected: str, *, origin: str = "") -> None:
        super().__init__(
            f"option {name!r} does not take {_shortened(value)} ({type(value).__name__})",
            where=origin,
            hint=f"it takes {expected}",
        )
        self.name = name


class UnknownMode(MinductorError, ValueError):
    """A torch.compile(mode=...) that does not exist."""

    code: ClassVar[str] = "MD003"

    def __init__(self, mode: object, known: Iterable[str]) -> None:
        super().__init__(f"unknown mode {mode!r}", hint=_choices(str(mode), "modes", known))
        self.mode = mode


class UnknownTarget(MinductorError, ValueError):
    """A target that neither the table of targets nor a registered backend names."""

    code: ClassVar[str] = "MD004"

    def __init__(self, name: object, known: Iterable[str]) -> None:
        super().__init__(f"unknown target {name!r}", hint=_choices(str(name), "targets", known))
        self.name = name


class BackendError(MinductorError):
    """A backend that is missing, registered twice, or made for another version of the API."""

    code: ClassVar[str] = "MD005"


class UnknownKernel(MinductorError, LookupError):
    """A question about a kernel that existed at no stage of this compile."""

    code: ClassVar[str] = "MD006"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no kernel or call is named {name!r}", hint=_choices(name, "names", {n for n in known if n}))
        self.name = name


class BadArgument(MinductorError, TypeError, ValueError):
    """An argument of a wrong type or value for a public function, so it is a TypeError and a ValueError."""

    code: ClassVar[str] = "MD007"

    def __init__(self, name: str, value: object, expected: str, *, why: str = "") -> None:
        super().__init__(
            f"{name} cannot be {_shortened(value)} ({type(value).__name__})", why=why, hint=f"it takes {expected}"
        )
        self.name = name


class BadCall(MinductorError, TypeError):
    """A call with arguments that do not fit the signature of the program."""

    code: ClassVar[str] = "MD008"

    def __init__(self, program: str, why: str) -> None:
        super().__init__(
            f"{program} cannot be called with these arguments", why=why, hint="give all arguments of one call of it"
        )


class UnknownStage(MinductorError, LookupError):
    """A question about a stage that compiled no graph of this explanation."""

    code: ClassVar[str] = "MD009"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = list(known)
        hint = f"{suggestion(name, names)}The stages are: {', '.join(names) or 'none, since no graph was compiled'}"
        super().__init__(f"no stage {name!r}", hint=hint)
        self.name = name


# What the machine has.


class CompilerNotFound(MinductorError):
    """No C++ compiler on this machine, so that nothing can be compiled for the CPU."""

    code: ClassVar[str] = "MD010"

    def __init__(self, tried: Sequence[str], *, why: str = "", install: str = "") -> None:
        super().__init__(
            "no C++ compiler found",
            why=why or f"tried {', '.join(tried) or 'nothing'}",
            hint=install
            or "install one (Debian, Ubuntu: `apt-get install g++`; Fedora: `dnf install gcc-c++`;"
            " macOS: `xcode-select --install`, then `brew install libomp`), or set CXX to its path",
        )
        self.tried = tuple(tried)


class CompileFailed(MinductorError):
    """The C++ compiler refuses a generated kernel: a fault of minductor, never of the user's program."""

    code: ClassVar[str] = "MD011"

    def __init__(
        self,
        message: str,
        *,
        kept: str,
        line: int | None = None,
        quoted: str = "",
        user_line: str = "",
        command: str = "",
    ) -> None:
        at = f"{kept}:{line}: {quoted.strip()}" if line is not None else kept
        super().__init__(
            f"a generated kernel does not compile: {message}",
            where=at,
            why=f"it comes from {user_line}" if user_line else "",
            hint=f"the source is kept in {kept}" + (f"; to see it again: {command}" if command else ""),
        )
        self.message = message
        self.kept = kept
        self.line = line
        self.quoted = quoted
        self.user_line = user_line
        self.command = command


class CompilerBroken(MinductorError):
    """The C++ compiler cannot compile even a trivial file: a fault of the machine, not of a kernel."""

    code: ClassVar[str] = "MD030"

    def __init__(self, compiler: str, why: str) -> None:
        super().__init__(
            "the C++ compiler does not work",
            where=compiler,
            why=why,
            hint="set CXX to a compiler that builds C++17 with -fopenmp, or install its OpenMP runtime (g++: libgomp1)"
            "; `minductor doctor` shows what it finds",
        )


class LoadFailed(MinductorError):
    """A compiled artefact that this process cannot load."""

    code: ClassVar[str] = "MD012"

    def __init__(self, path: str, why: str) -> None:
        super().__init__("a compiled artefact cannot be loaded", where=path, why=why, hint="run `minductor doctor`")
        self.path = path


class StoreRefused(MinductorError):
    """A cache folder that other users can write to; its shared objects would run with this user's rights."""

    code: ClassVar[str] = "MD013"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            "the cache folder is not trusted",
            where=path,
            why=why,
            hint="set MINDUCTOR_CACHE_DIR to a folder that you own with mode 0700, or remove this one",
        )
        self.path = path


class CorruptEntry(MinductorWarning):
    """A cache entry that is damaged; it is removed and built again."""

    code: ClassVar[str] = "MD014"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            "a damaged cache entry is built again",
            where=path,
            why=why,
            hint="`minductor cache clear` empties the cache",
        )
        self.path = path


class StoreUnwritable(MinductorWarning):
    """A cache folder that cannot be written; the process uses a private temporary folder instead."""

    code: ClassVar[str] = "MD015"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            "the cache folder cannot be written, so nothing is kept after this process",
            where=path,
            why=why,
            hint="set MINDUCTOR_CACHE_DIR to a folder that you can write",
        )
        self.path = path


class CacheMended(MinductorWarning):
    """A file or folder that is in the way in the cache folder; it is moved aside."""

    code: ClassVar[str] = "MD016"

    def __init__(self, path: str, why: str, kept: str) -> None:
        super().__init__(
            "something lies in the way in the cache folder and is set aside",
            where=path,
            why=why,
            hint=f"it stays in {kept} for a day",
        )
        self.path = path


class WaitsForAnother(MinductorWarning):
    """Another process compiles the same graph, and this one has waited for it for a while."""

    code: ClassVar[str] = "MD017"

    def __init__(self, who: str, limit: str) -> None:
        super().__init__(
            f"waiting for {who}, which compiles the same graph",
            hint=f"after {limit} s (the option compiler_timeout) this process compiles it for itself",
        )
        self.who = who


class NoCache(MinductorError):
    """A folder that is not a cache of minductor, so nothing in it is read or removed."""

    code: ClassVar[str] = "MD018"

    def __init__(self, path: str, why: str, *, hint: str) -> None:
        super().__init__("this is no cache of minductor", where=path, why=why, hint=hint)
        self.path = path


class CacheUnmarked(MinductorWarning):
    """A cache folder without a marker, of an older minductor or another program; it is not used and not changed."""

    code: ClassVar[str] = "MD019"

    def __init__(self, path: str, used: str) -> None:
        super().__init__(
            f"the cache folder has no marker, so it is left as it is, and {used} is used",
            where=path,
            hint=f"if an older minductor made it, `minductor cache --dir {path} adopt` takes it over; or delete it",
        )
        self.path = path


# What the program holds.


class UnsupportedInput(MinductorError, TypeError):
    """An input (sparse, quantised) or a node that minductor does not compile; `name`: its name or a description."""

    code: ClassVar[str] = "MD020"

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(
            f"{repr(name) if name.isidentifier() else name} is {kind}, which minductor does not compile",
            hint="pass plain dense tensors, or leave options={'fallback': 'allow'} so that the graph runs in eager",
        )
        self.name = name
        self.kind = kind


class RanInEager(MinductorWarning):
    """A graph that runs in eager as a whole, because minductor cannot compile it."""

    code: ClassVar[str] = "MD021"

    def __init__(self, why: str, *, where: str = "") -> None:
        super().__init__(
            "this graph runs in eager", where=where, why=why, hint="options={'fallback': 'error'} makes this an error"
        )


class FallbackRefused(MinductorError):
    """An operator that would run in eager under options={"fallback": "error"}; `node`: the ATen node."""

    code: ClassVar[str] = "MD022"

    def __init__(self, op: str, why: str, *, node: str = "", where: str = "") -> None:
        super().__init__(
            f"{op} would run in eager",
            where=where,
            why=why,
            hint="options={'fallback': 'allow'} runs it as an extern call and counts it in the report",
        )
        self.op = op
        self.node = node


class LyingSchema(MinductorError):
    """A custom op that breaks its schema: it returns a view of an input, writes an input, or has another layout."""

    code: ClassVar[str] = "MD024"

    def __init__(self, op: str, claim: str, fact: str) -> None:
        super().__init__(
            f"custom op {op} does not keep to its schema",
            why=f"it declares {claim}, yet {fact}",
            hint="correct the schema or the fake implementation; torch.library.opcheck finds such faults",
        )
        self.op = op


# What minductor got wrong, or an author of a pass or backend.


class VerifyError(MinductorError):
    """A stage gave a program or plan that breaks a rule of the IR."""

    code: ClassVar[str] = "MD040"

    def __init__(self, stage: str, rule: str, text: str) -> None:
        super().__init__(
            f"stage {stage!r} breaks the rule {rule!r}: {text}",
            why="a fault of minductor or of a registered pass, not of your program",
            hint="MINDUCTOR_TRACE=4 shows the IR after each stage",
        )
        self.stage = stage
        self.rule = rule
        self.text = text


class StageFailed(MinductorError):
    """A stage raised an exception that is not a MinductorError; it is the `__cause__`."""

    code: ClassVar[str] = "MD041"

    def __init__(self, stage: str, cause: BaseException) -> None:
        super().__init__(
            f"stage {stage!r} failed: {type(cause).__name__}: {cause}",
            why="a fault of minductor or of a registered pass, not of your program",
            hint="MINDUCTOR_TRACE=4 shows the IR up to this stage",
        )
        self.stage = stage


class MemoryFault(MinductorError):
    """A call of a graph used memory in another way than its plan says; checked under option verify_memory only."""

    code: ClassVar[str] = "MD042"

    def __init__(self, what: str, planned: str, *, where: str = "") -> None:
        super().__init__(
            what,
            where=where,
            why=f"planned: {planned}",
            hint="a fault of minductor or of a registered pass, not of your program; MINDUCTOR_TRACE=4 shows the plan",
        )
        self.planned = planned


class BrokenBackend(MinductorWarning):
    """A backend of an installed package that cannot be registered; minductor goes on without it."""

    code: ClassVar[str] = "MD043"

    def __init__(self, package: str, name: str, cause: BaseException) -> None:
        super().__init__(
            f"the backend {name!r} of the installed package {package!r} is left out",
            why=f"{type(cause).__name__}: {cause}",
            hint=f"repair or uninstall {package}",
        )
        self.package = package


class InterpretRefused(MinductorError):
    """A launch that would take minutes in Triton's interpreter."""

    code: ClassVar[str] = "MD060"

    def __init__(self, kernel: str, programs: int, cap: int) -> None:
        super().__init__(
            f"kernel {kernel} has {programs} programs, and the interpreter takes at most {cap}",
            why="it needs more than a millisecond for each",
            hint="give the graph smaller tensors, or compile it for a real target with minductor.compile_only",
        )


class Unwritable(MinductorError):
    """A kernel that cannot be expressed in Triton."""

    code: ClassVar[str] = "MD062"

    def __init__(self, why: str) -> None:
        super().__init__(
            "a kernel of this graph cannot be written in Triton",
            why=why,
            hint="target 'cpu' has all of these; MINDUCTOR_TRACE=4 shows the kernel",
        )


class TargetElsewhere(MinductorError):
    """A graph was compiled for a device that this process cannot run it on."""

    code: ClassVar[str] = "MD061"

    def __init__(self, target: str) -> None:
        super().__init__(
            f"target {target} compiles here and does not run here",
            why="the tensors are not on such a GPU of this machine",
            hint=f"minductor.compile_only(fn, *args, target={target!r}) tells its kernels; 'interpret' runs them",
        )


class ChoiceByClock(MinductorError):
    """A measurement would decide about the bits of results under option deterministic."""

    code: ClassVar[str] = "MD064"

    def __init__(self, affects: str) -> None:
        super().__init__(
            f"a clock may not decide what affects {affects}",
            why="the options ask for the same results each time",
            hint="take the choice's default, or measure without the option deterministic",
        )


class NothingCompiled(MinductorError):
    """Dynamo gave minductor no graph of a program, or no graph that minductor compiles."""

    code: ClassVar[str] = "MD065"

    def __init__(self, program: str) -> None:
        super().__init__(
            f"nothing of {program} was compiled",
            why="it holds no tensor operation that Dynamo traces, or a warning above says why its graphs run in eager",
            hint="TORCH_LOGS=graph_breaks,recompiles shows what Dynamo does with it",
        )


class ImaginedDevice(MinductorError):
    """An operation that torch cannot trace on GPU tensors without a GPU, which exist as metadata only."""

    code: ClassVar[str] = "MD063"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} of tensors on a GPU that this torch does not reach",
            why="torch traces only some operators on such tensors, and ends the process at a gradient",
            hint="give minductor.compile_only the same tensors on the CPU: it compiles them as if on its target",
        )


# What leaves the process, and comes back into another.


class NotNative(MinductorError):
    """A call that a C++ wrapper cannot make."""

    code: ClassVar[str] = "MD070"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} has no form in a C++ wrapper", hint="options={'wrapper': 'python'} has all of them")
        self.what = what


class WrapperReplaced(MinductorWarning):
    """A graph for which a C++ wrapper was asked for gets a Python wrapper."""

    code: ClassVar[str] = "MD071"

    def __init__(self, what: str) -> None:
        super().__init__(
            "this graph's wrapper is Python",
            why=f"{what} has no form in a C++ wrapper",
            hint="options={'wrapper': 'python'} asks for it without this warning",
        )


class UnreadablePlan(MinductorError, ValueError):
    """A text that is not a plan, or a plan of another schema."""

    code: ClassVar[str] = "MD080"

    def __init__(self, why: str) -> None:
        super().__init__("this text is no plan", why=why, hint="Write it anew with the minductor that is to read it.")


class NotExportable(MinductorError):
    """A program that cannot be exported to another process."""

    code: ClassVar[str] = "MD081"

    def __init__(self, what: str, why: str, *, hint: str = "") -> None:
        super().__init__(f"{what} cannot be exported", why=why, hint=hint)


class PackageRefused(MinductorError):
    """A file that is not a package, is incomplete, or was changed after the export."""

    code: ClassVar[str] = "MD082"

    def __init__(self, path: str, why: str, *, hint: str = "Export it anew.") -> None:
        super().__init__("this package is not loaded", where=path, why=why, hint=hint)


class PackageMissing(PackageRefused, FileNotFoundError):
    """A path of a package at which there is no file."""

    code: ClassVar[str] = "MD085"

    def __init__(self, path: str) -> None:
        super().__init__(path, "there is no such file", hint="minductor.export writes one")


class NoAheadOfTime(MinductorError):
    """A call of torch.compile(...).aot_compile(...), which minductor does not support."""

    code: ClassVar[str] = "MD086"

    def __init__(self) -> None:
        super().__init__(
            "minductor does not compile for aot_compile",
            why="what torch saves there has to be an object of TorchInductor's",
            hint="minductor.export(fn, args, path) writes a package, and minductor.load(path) loads it in any process",
        )


class PackageElsewhere(MinductorError):
    """A valid package that this machine, or this version of torch, cannot run."""

    code: ClassVar[str] = "MD083"

    def __init__(self, path: str, why: str) -> None:
        super().__init__("this package does not run here", where=path, why=why, hint="Export it here, or for less.")


class WrongInput(MinductorError, ValueError):
    """A call of an exported program with inputs that it was not exported for."""

    code: ClassVar[str] = "MD084"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name} is not what the program was exported for",
            why=why,
            hint="call it as it was exported, or export it for this too: dynamic_shapes leave sizes open",
        )
