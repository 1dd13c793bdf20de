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


def user_lines(places: Iterable[str]) -> str:
    """The user's lines of several ATen nodes as one text, each once; the line of a node may be unknown, "".

    >>> user_lines(["a.py:3", "", "a.py:3", "a.py:4"])
    'a.py:3, a.py:4'
    """
    return ", ".join(dict.fromkeys(place for place in places if place))


class MinductorError(Exception):
    """The class of all errors of minductor: `except minductor.MinductorError` catches each of them.

    Args:
        what: what happened, as one line.
        where: the user's line or the environment variable that it is about.
        why: the reason.
        hint: what to do about it.
    """

    code: ClassVar[str] = "MD000"

    def __init_subclass__(cls, *, code: str = "") -> None:
        super().__init_subclass__()
        cls.code = code or cls.code

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


class MinductorWarning(MinductorError, UserWarning, code="MD900"):
    """The class of all warnings of minductor: the compile went on, at the price that the text names."""


# Wrong arguments and options.


class UnknownOption(MinductorError, ValueError, code="MD001"):
    """A key in torch.compile(options=...) that is no option of minductor or of the backend in use."""

    def __init__(self, name: str, known: Iterable[str], *, renamed_to: str = "") -> None:
        hint = f"it was renamed to {renamed_to!r}" if renamed_to else _choices(name, "options", known)
        super().__init__(f"unknown option {name!r}", hint=hint)


class BadOptionValue(MinductorError, ValueError, code="MD002"):
    """An option whose value has the wrong type, or is not among the allowed ones."""

    def __init__(self, name: str, value: object, expected: str, *, origin: str = "", meant: str = "") -> None:
        what = f"option {name!r} does not take {_shortened(value)} ({type(value).__name__})"
        super().__init__(what, where=origin, hint=f"{meant}it takes {expected}")


class UnknownMode(MinductorError, ValueError, code="MD003"):
    """A torch.compile(mode=...) that does not exist."""

    def __init__(self, mode: object, known: Iterable[str]) -> None:
        super().__init__(f"unknown mode {mode!r}", hint=_choices(str(mode), "modes", known))


class UnknownTarget(MinductorError, ValueError, code="MD004"):
    """A target that neither the table of targets nor a registered backend names."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        super().__init__(f"unknown target {name!r}", hint=_choices(str(name), "targets", known))


class BackendError(MinductorError, code="MD005"):
    """A backend that is missing, registered twice, or made for another version of the API."""


class UnknownKernel(MinductorError, LookupError, code="MD006"):
    """A question about a kernel that existed at no stage of this compile."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no kernel or call is named {name!r}", hint=_choices(name, "names", {n for n in known if n}))


class BadArgument(MinductorError, TypeError, ValueError, code="MD007"):
    """An argument of a wrong type or value for a public function, so it is a TypeError and a ValueError."""

    def __init__(self, name: str, value: object, expected: str, *, why: str = "") -> None:
        what = f"{name} cannot be {_shortened(value)} ({type(value).__name__})"
        super().__init__(what, why=why, hint=f"it takes {expected}")


class BadCall(MinductorError, TypeError, code="MD008"):
    """A call with arguments that do not fit the signature of the program."""

    def __init__(self, program: str, why: str) -> None:
        what = f"{program} cannot be called with these arguments"
        super().__init__(what, why=why, hint="pass all arguments of one call")


class UnknownStage(MinductorError, LookupError, code="MD009"):
    """A question about a stage that compiled no graph of this explanation."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = list(known)
        hint = f"{suggestion(name, names)}The stages are: {', '.join(names) or 'none, since no graph was compiled'}"
        super().__init__(f"no stage {name!r}", hint=hint)


# Compilers, files and processes of this machine.


class CompilerNotFound(MinductorError, code="MD010"):
    """No C++ compiler on this machine, so that nothing can be compiled for the CPU."""

    def __init__(self, tried: Sequence[str], *, why: str = "", install: str = "") -> None:
        hint = (
            "install one (Debian, Ubuntu: `apt-get install g++`; Fedora: `dnf install gcc-c++`;"
            " macOS: `xcode-select --install`, then `brew install libomp`), or set CXX to its path"
        )
        why = why or f"tried {', '.join(tried) or 'nothing'}"
        super().__init__("no C++ compiler found", why=why, hint=install or hint)
        self.tried = tuple(tried)


class CompileFailed(MinductorError, code="MD011"):
    """The C++ compiler refuses a generated kernel: a fault of minductor, never of the user's program."""

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
        where = f"{kept}:{line}: {quoted.strip()}" if line is not None else kept
        why = f"it comes from {user_line}" if user_line else ""
        hint = f"the source is kept in {kept}" + (f"; to repeat the error: {command}" if command else "")
        super().__init__(f"a generated kernel does not compile: {message}", where=where, why=why, hint=hint)
        self.message = message
        self.kept = kept
        self.line = line
        self.quoted = quoted
        self.user_line = user_line
        self.command = command


class CompilerBroken(MinductorError, code="MD030"):
    """The C++ compiler cannot compile even a trivial file: a fault of the machine, not of a kernel."""

    def __init__(self, compiler: str, why: str) -> None:
        hint = (
            "set CXX to a compiler that builds C++17 with -fopenmp, or install its OpenMP runtime (g++: libgomp1);"
            " `minductor doctor` shows what it finds"
        )
        super().__init__("the C++ compiler does not work", where=compiler, why=why, hint=hint)


class LoadFailed(MinductorError, code="MD012"):
    """A compiled artefact that this process cannot load."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__("a compiled artefact cannot be loaded", where=path, why=why, hint="run `minductor doctor`")


class StoreRefused(MinductorError, code="MD013"):
    """A cache folder that other users can write to; its shared objects would run with this user's rights."""

    def __init__(self, path: str, why: str) -> None:
        hint = "set MINDUCTOR_CACHE_DIR to a folder that you own with mode 0700, or remove this one"
        super().__init__("the cache folder is not trusted", where=path, why=why, hint=hint)


class CorruptEntry(MinductorWarning, code="MD014"):
    """A cache entry that is damaged; it is removed and built again."""

    def __init__(self, path: str, why: str) -> None:
        hint = "`minductor cache clear` empties the cache"
        super().__init__("a damaged cache entry is built again", where=path, why=why, hint=hint)


class StoreUnwritable(MinductorWarning, code="MD015"):
    """A cache folder that cannot be written; the process uses a private temporary folder instead."""

    def __init__(self, path: str, why: str) -> None:
        what = "the cache folder cannot be written, so nothing is kept after this process"
        super().__init__(what, where=path, why=why, hint="set MINDUCTOR_CACHE_DIR to a folder that you can write")


class CacheMended(MinductorWarning, code="MD016"):
    """A file where the cache needs a folder, or a folder where it needs a file; it is moved to `kept`."""

    def __init__(self, path: str, why: str, kept: str) -> None:
        what = "a file or folder that does not belong in the cache was moved out of the way"
        super().__init__(what, where=path, why=why, hint=f"it is kept in {kept} for a day")


class WaitsForAnother(MinductorWarning, code="MD017"):
    """Another process compiles the same graph, and this one has waited for it for a while."""

    def __init__(self, who: str, limit: str) -> None:
        hint = f"after {limit} s (the option compiler_timeout) this process compiles the graph itself"
        super().__init__(f"waiting for {who}, which compiles the same graph", hint=hint)


class NoCache(MinductorError, code="MD018"):
    """A folder that is not a cache of minductor, so nothing in it is read or removed."""

    def __init__(self, path: str, why: str, *, hint: str) -> None:
        super().__init__("this is no cache of minductor", where=path, why=why, hint=hint)


class CacheUnmarked(MinductorWarning, code="MD019"):
    """A cache folder without a marker, of an older minductor or another program; it is not used and not changed."""

    def __init__(self, path: str, used: str) -> None:
        what = f"the cache folder has no marker of minductor, so it is left unchanged, and {used} is used instead"
        hint = f"if an older minductor made it, `minductor cache --dir {path} adopt` takes it over; or delete it"
        super().__init__(what, where=path, hint=hint)


# Graphs that minductor cannot compile.


class UnsupportedInput(MinductorError, TypeError, code="MD020"):
    """An input (sparse, quantised) or a node that minductor does not compile; `name`: its name or a description."""

    def __init__(self, name: str, kind: str) -> None:
        what = f"{repr(name) if name.isidentifier() else name} is {kind}, which minductor does not compile"
        hint = "pass plain dense tensors, or leave options={'fallback': 'allow'} so that the graph runs in eager"
        super().__init__(what, hint=hint)
        self.name = name


class RanInEager(MinductorWarning, code="MD021"):
    """A graph that runs in eager as a whole, because minductor cannot compile it."""

    def __init__(self, why: str, *, where: str = "") -> None:
        hint = "options={'fallback': 'error'} makes this an error"
        super().__init__("this graph runs in eager", where=where, why=why, hint=hint)


class FallbackRefused(MinductorError, code="MD022"):
    """An operator that would run in eager under options={"fallback": "error"}; `node`: the ATen node."""

    def __init__(self, op: str, why: str, *, node: str = "", where: str = "") -> None:
        hint = "options={'fallback': 'allow'} runs it as a call of torch and counts it in the report"
        super().__init__(f"{op} would run in eager", where=where, why=why, hint=hint)
        self.node = node


class LyingSchema(MinductorError, code="MD024"):
    """A custom op that breaks its schema: it returns a view of an input, writes an input, or has another layout."""

    def __init__(self, op: str, claim: str, fact: str) -> None:
        hint = "correct the schema or the fake implementation; torch.library.opcheck finds such faults"
        super().__init__(
            f"custom op {op} does not keep to its schema", why=f"it declares {claim}, yet {fact}", hint=hint
        )


# Faults of minductor, of a registered pass or of a backend; and limits of targets.

_NOT_THE_USERS = "a fault of minductor or of a registered pass, not of your program"


class VerifyError(MinductorError, code="MD040"):
    """A stage gave a program or plan that breaks a rule of the IR."""

    def __init__(self, stage: str, rule: str, text: str) -> None:
        what = f"stage {stage!r} breaks the rule {rule!r}: {text}"
        super().__init__(what, why=_NOT_THE_USERS, hint="MINDUCTOR_TRACE=4 shows the IR after each stage")
        self.rule = rule


class StageFailed(MinductorError, code="MD041"):
    """A stage raised an exception that is not a MinductorError; it is the `__cause__`."""

    def __init__(self, stage: str, cause: BaseException) -> None:
        what = f"stage {stage!r} failed: {type(cause).__name__}: {cause}"
        super().__init__(what, why=_NOT_THE_USERS, hint="MINDUCTOR_TRACE=4 shows the IR up to this stage")


class MemoryFault(MinductorError, code="MD042"):
    """A call of a graph used memory in another way than its plan says; checked under option verify_memory only."""

    def __init__(self, what: str, planned: str, *, where: str = "") -> None:
        hint = f"{_NOT_THE_USERS}; MINDUCTOR_TRACE=4 shows the plan"
        super().__init__(what, where=where, why=f"planned: {planned}", hint=hint)


class BrokenBackend(MinductorWarning, code="MD043"):
    """A backend of an installed package that cannot be registered; minductor goes on without it."""

    def __init__(self, package: str, name: str, cause: BaseException) -> None:
        what = f"the backend {name!r} of the installed package {package!r} cannot be used"
        super().__init__(what, why=f"{type(cause).__name__}: {cause}", hint=f"repair or uninstall {package}")


class NonFiniteResult(MinductorError, FloatingPointError, code="MD050"):
    """A kernel stored NaN or infinity, and read none; checked under option nan_asserts only."""

    def __init__(self, what: str) -> None:
        why = "no tensor, number or constant that the kernel reads is one"
        hint = (
            "look for what has no finite result there: a division by 0, a log or root of a negative number, a number"
            " too large for the dtype; options={'fuse': False} leaves fewer lines to look at"
        )
        super().__init__(what, why=why, hint=hint)


class InterpretRefused(MinductorError, code="MD060"):
    """A launch that would take minutes in Triton's interpreter."""

    def __init__(self, kernel: str, programs: int, cap: int) -> None:
        what = f"kernel {kernel} has {programs} programs, and Triton's interpreter may run at most {cap}"
        hint = "call the graph with smaller tensors, or compile it for a real target with minductor.compile_only"
        super().__init__(what, why="the interpreter needs more than a millisecond for each program", hint=hint)


class Unwritable(MinductorError, code="MD062"):
    """A kernel that cannot be expressed in Triton."""

    def __init__(self, why: str) -> None:
        hint = "the target 'cpu' can compile it; MINDUCTOR_TRACE=4 shows the kernel"
        super().__init__("a kernel of this graph cannot be written in Triton", why=why, hint=hint)


class TargetElsewhere(MinductorError, code="MD061"):
    """A graph was compiled for a device that this process cannot run it on."""

    def __init__(self, target: str) -> None:
        what = f"graphs compile for target {target} here, but do not run here"
        hint = (
            f"minductor.compile_only(fn, *args, target={target!r}) shows the kernels; the target 'interpret' runs them"
        )
        super().__init__(what, why="the tensors are not on such a GPU of this machine", hint=hint)


class ChoiceByClock(MinductorError, code="MD064"):
    """A measurement would decide about the bits of results under option deterministic."""

    def __init__(self, affects: str) -> None:
        what = f"no measured time may decide what affects the {affects} of results"
        hint = "take the choice's default, or measure without the option deterministic"
        super().__init__(what, why="the option deterministic asks for the same results in every process", hint=hint)


class NothingCompiled(MinductorError, code="MD065"):
    """Dynamo gave minductor no graph of a program, or no graph that minductor compiles."""

    def __init__(self, program: str) -> None:
        why = "it holds no tensor operation that Dynamo traces, or a warning above says why its graphs run in eager"
        hint = "TORCH_LOGS=graph_breaks,recompiles shows what Dynamo does with it"
        super().__init__(f"nothing of {program} was compiled", why=why, hint=hint)


class ImaginedDevice(MinductorError, code="MD063"):
    """An operation that torch cannot trace on GPU tensors without a GPU, which exist as metadata only."""

    def __init__(self, what: str) -> None:
        what = f"{what} of GPU tensors cannot be traced, because this torch finds no GPU"
        why = "torch traces only some operators on such tensors, and ends the process at a gradient"
        hint = "give minductor.compile_only the same tensors on the CPU: it compiles them as if on its target"
        super().__init__(what, why=why, hint=hint)


# Wrappers, plans and packages.


class NotNative(MinductorError, code="MD070"):
    """A call that a C++ wrapper cannot make."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a C++ wrapper cannot express {what}", hint="options={'wrapper': 'python'} has no such limit")


class WrapperReplaced(MinductorWarning, code="MD071"):
    """A graph for which a C++ wrapper was asked for gets a Python wrapper."""

    def __init__(self, what: str) -> None:
        hint = "options={'wrapper': 'python'} asks for a Python wrapper without this warning"
        super().__init__("this graph gets a Python wrapper", why=f"a C++ wrapper cannot express {what}", hint=hint)


class UnreadablePlan(MinductorError, ValueError, code="MD080"):
    """A text that is not a plan, or a plan of another schema."""

    def __init__(self, why: str) -> None:
        super().__init__("this text is no plan", why=why, hint="write it with the version of minductor that reads it")


class NotExportable(MinductorError, code="MD081"):
    """A program that cannot be exported to another process."""

    def __init__(self, what: str, why: str, *, hint: str = "") -> None:
        super().__init__(f"{what} cannot be exported", why=why, hint=hint)


class PackageRefused(MinductorError, code="MD082"):
    """A file that is not a package, is incomplete, or was changed after the export."""

    def __init__(self, path: str, why: str, *, hint: str = "export the program again") -> None:
        super().__init__("this package cannot be loaded", where=path, why=why, hint=hint)


class PackageMissing(PackageRefused, FileNotFoundError, code="MD085"):
    """A path of a package at which there is no file."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "there is no such file", hint="minductor.export writes one")


class NoAheadOfTime(MinductorError, code="MD086"):
    """A call of torch.compile(...).aot_compile(...), which minductor does not support."""

    def __init__(self) -> None:
        why = "torch can save only objects of TorchInductor there"
        hint = "minductor.export(fn, args, path) writes a package, and minductor.load(path) loads it in any process"
        super().__init__("minductor does not compile for aot_compile", why=why, hint=hint)


class PackageElsewhere(MinductorError, code="MD083"):
    """A valid package that this machine, or this version of torch, cannot run."""

    def __init__(
        self, path: str, why: str, *, hint: str = "export it on this machine, with this torch and minductor"
    ) -> None:
        super().__init__("this package does not run here", where=path, why=why, hint=hint)


class WrongInput(MinductorError, ValueError, code="MD084"):
    """A call of an exported program with inputs that it was not exported for."""

    def __init__(self, name: str, why: str) -> None:
        hint = "pass inputs like those of the export, or export it with dynamic_shapes, which leave sizes open"
        super().__init__(f"{name} is not what the program was exported for", why=why, hint=hint)


class WrongRewrite(MinductorError, code="MD091"):
    """A rewrite of the graph that fails, or whose replacement is not what it replaces."""

    def __init__(self, rewrite: str, node: str, why: str, *, where: str = "") -> None:
        hint = f"options={{'rewrites': '-{rewrite}'}} compiles without this rewrite"
        super().__init__(f"the rewrite {rewrite!r} of {node} is wrong", where=where, why=why, hint=hint)


class FrozenChanged(MinductorError, code="MD092"):
    """A call of a frozen graph after one of its weights was changed in place."""

    def __init__(self, weight: str) -> None:
        why = "options={'freeze': True} computed with its old numbers once and for all"
        hint = (
            "torch.compiler.reset() compiles again; or change weights before the first call, or compile without freeze"
        )
        super().__init__(f"the frozen weight {weight} was changed in place", why=why, hint=hint)


class FrozenTraining(MinductorError, code="MD093"):
    """A graph whose gradients are asked for under options={"freeze": True}."""

    def __init__(self) -> None:
        why = "gradients are on, and a parameter or an input needs one"
        hint = "call it under torch.no_grad() or torch.inference_mode(), or compile without freeze"
        super().__init__("a frozen graph is for inference", why=why, hint=hint)


class BadHeuristic(MinductorError, ValueError, code="MD090"):
    """A learned choice that cannot be used or made: its measurements or its metadata are damaged, or teach nothing."""

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        hint = hint or "`minductor heuristics collect` measures anew, and `minductor heuristics learn` learns from that"
        super().__init__(what, where=where, why=why, hint=hint)
