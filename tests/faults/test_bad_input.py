"""Bad input to each public door: one line that says what is wrong, a hint, and no trace left behind.

Each row holds a door, what it is given, the class of its error, a piece of what the error says, and a piece of its
hint. After each row no file lies in the working directory or among temporary files, no state of the process has
changed, and no process is left.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import minductor
from minductor.__main__ import main
from minductor.backends import API_VERSION, Backend, Pass, kinds, unregister_backend
from minductor.core import errors
from minductor.options import Options
from minductor.target import Target

HERE = Path(__file__)
NOBODY = "~nobodyiscalledso/x"


class Row(NamedTuple):
    """`says` stands in what the error says happened or why."""

    door: str
    call: Callable[[], object]
    error: type[errors.MinductorError]
    says: str
    hint: str


def f(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin()


X = torch.ones(4)
LINEAR = torch.nn.Linear(4, 4)
PARTS: Mapping[str, Any] = dict.fromkeys(("probe", "kernels", "build", "load", "launch"), "a:b")


def compiled(**given: Any) -> object:
    """The call of a function that torch.compile gives: options are read then."""
    torch._dynamo.reset()
    return torch.compile(f, backend="minductor", **given)(X)


def by(**given: Any) -> object:
    """The same, by a Compiler made for it."""
    torch._dynamo.reset()
    return torch.compile(f, backend=minductor.Compiler(**given))(X)


def toy(**given: Any) -> object:
    return minductor.register_backend(
        Backend(**{"kind": "toy", "targets": (Target("toy_1", "toy"),), "api_version": API_VERSION, **PARTS, **given})
    )


def ordered(deps: Any, fn: Any) -> object:
    """A call of control_deps in a function that is compiled."""
    torch._dynamo.reset()
    return torch.compile(lambda x: minductor.control_deps(deps, fn, x), backend="minductor")(X)


def node(graph: torch.fx.GraphModule, name: str) -> Any:
    return next(node for node in graph.graph.nodes if node.name == name)


def behind(name: Any, *deps: Any) -> object:
    """A call of add_control_deps on a graph of placeholder x, mul, sin and output, with nodes by their names."""
    graph = torch.fx.symbolic_trace(f)
    named = [node(graph, dep) if isinstance(dep, str) else dep for dep in deps]
    return minductor.add_control_deps(node(graph, name) if isinstance(name, str) else name, named)


OPTIONS = (errors.BadArgument, "options cannot be", "as {'fuse': False}")
PROGRAM = (errors.BadArgument, "the program of {} cannot be 5 (int)", "a torch.nn.Module")
FEW = (errors.BadCall, "missing a required argument: 'x'", "all arguments")
MANY = (errors.BadCall, "too many positional arguments", "all arguments")
NO_PATH = "it takes a path"

TORCH_COMPILE = (
    *(Row("torch.compile", lambda o=o: compiled(options=o), *OPTIONS) for o in (["fuse"], "fuse", 5)),
    Row(
        "torch.compile", lambda: compiled(options={"fuze": True}), errors.UnknownOption, "'fuze'", "did you mean 'fuse'"
    ),
    Row("torch.compile", lambda: compiled(options={5: True}), errors.UnknownOption, "'5'", "The options are"),
    Row("torch.compile", lambda: compiled(options={"fuse": "yes"}), errors.BadOptionValue, "'yes' (str)", "a bool"),
    Row(
        "torch.compile",
        lambda: torch.compile(torch.log, backend="minductor", options={"nan_asserts": True})(-X.abs() - 1),
        *(errors.NonFiniteResult, "kernel log_0 stores NaN", "a log or root of a negative number"),
    ),
    Row("torch.compile", lambda: compiled(options={"fuse": 1}), errors.BadOptionValue, "1 (int)", "a bool"),
    Row("torch.compile", lambda: compiled(options={"target": 90}), errors.BadOptionValue, "90 (int)", "a str"),
    Row("torch.compile", lambda: compiled(options={"target": "sm90"}), errors.UnknownTarget, "'sm90'", "'sm_90'"),
    Row(
        "torch.compile", lambda: compiled(options={"target": "sm_90"}), errors.TargetElsewhere, "sm_90", "compile_only"
    ),
    Row("torch.compile", lambda: compiled(options={"trace": "9"}), errors.BadOptionValue, "'9'", "dir:PATH"),
    Row("torch.compile", lambda: compiled(options={"trace": "dir:a\0b"}), errors.BadArgument, "null byte", NO_PATH),
    Row(
        "torch.compile",
        lambda: compiled(options={"trace": f"html:{NOBODY}"}),
        errors.BadArgument,
        "not the home of a user",
        NO_PATH,
    ),
    Row(
        "torch.compile", lambda: compiled(options={"trace": "html:no/a"}), errors.BadOptionValue, "html:no/a", "written"
    ),
    Row("torch.compile", lambda: compiled(options={"cache_dir": "a\0b"}), errors.BadArgument, "null byte", NO_PATH),
    Row(
        "torch.compile",
        lambda: compiled(options={"cache_dir": NOBODY}),
        errors.BadArgument,
        "not the home of a user",
        NO_PATH,
    ),
    Row(
        "torch.compile", lambda: compiled(options={"cache_dir": "\ud800"}), errors.BadArgument, "cannot encode", NO_PATH
    ),
    Row("torch.compile", lambda: compiled(options={"cache_dir": "a" * 999}), errors.BadArgument, "too long", NO_PATH),
    Row("torch.compile", lambda: compiled(options={"toy.unroll": 2}), errors.UnknownOption, "'toy.unroll'", "options"),
    *(
        Row("torch.compile", lambda m=m: compiled(mode=m), errors.UnknownMode, "unknown mode", "The modes are")
        for m in ("fast", 5, ["fast"])
    ),
)


def ahead(x: torch.Tensor, **given: Any) -> Any:
    torch._dynamo.reset()
    switch = {"enable_aot_compile": True} if hasattr(torch._dynamo.config, "enable_aot_compile") else {}
    with torch._dynamo.config.patch(switch):  # until torch 2.12 it has to be asked for
        return torch.compile(f, backend="minductor", fullgraph=True, **given).aot_compile(((x,), {}))


PYTHON = (
    Row("aot_compile", lambda: ahead(X), errors.NoAheadOfTime, "aot_compile", "minductor.export(fn, args, path)"),
    Row("aot_compile", lambda: ahead(LINEAR.weight), errors.NoAheadOfTime, "aot_compile", "minductor.load"),
    Row("aot_compile", lambda: ahead(X, dynamic=True), errors.NoAheadOfTime, "aot_compile", "minductor.export"),
    Row("compile_only", lambda: minductor.compile_only(5), *PROGRAM),
    Row("compile_only", lambda: minductor.compile_only(torch.nn.Linear, 3, 3), errors.BadArgument, "a class", "Module"),
    Row("compile_only", lambda: minductor.compile_only(f), *FEW),
    Row("compile_only", lambda: minductor.compile_only(f, X, X), *MANY),
    Row("compile_only", lambda: minductor.compile_only(f, y=X), *FEW),
    Row("compile_only", lambda: minductor.compile_only(LINEAR), errors.BadCall, "'input'", "arguments"),
    Row("compile_only", lambda: minductor.compile_only(f, X, target=90), errors.UnknownTarget, "90", "sm_90"),
    Row("compile_only", lambda: minductor.compile_only(f, X, target=None), errors.UnknownTarget, "None", "sm_90"),
    Row("compile_only", lambda: minductor.compile_only(f, X, target=[]), errors.UnknownTarget, "[]", "sm_90"),
    Row("compile_only", lambda: minductor.compile_only(f, X, target="cpu"), errors.BadArgument, "is no GPU", "'sm_90'"),
    Row("compile_only", lambda: minductor.compile_only(f, X, options=["fuse"]), *OPTIONS),
    Row("compile_only", lambda: minductor.compile_only(f, X, grad=True), errors.BadArgument, "requires", "True where"),
    Row(
        "compile_only",
        lambda: minductor.compile_only(f, X, options={"target": "sm_80"}),
        *(errors.BadArgument, "options of compile_only", "target='sm_80'"),
    ),
    Row("compile_only", lambda: minductor.compile_only(lambda: 3), errors.NothingCompiled, "nothing", "TORCH_LOGS"),
    Row("explain", lambda: minductor.explain(5), *PROGRAM),
    Row("explain", lambda: minductor.explain(f), *FEW),
    Row("explain", lambda: minductor.explain(f, X, X), *MANY),
    Row("explain", lambda: minductor.explain(f, X, options=["fuse"]), *OPTIONS),
    Row("explain", lambda: minductor.explain(f, X, options={"fuze": 1}), errors.UnknownOption, "'fuze'", "'fuse'"),
    Row("explain", lambda: minductor.explain(f, X).stage("fuze"), errors.UnknownStage, "'fuze'", "did you mean 'fuse'"),
    Row(
        "explain", lambda: minductor.explain(f, X).text(["fuze"]), errors.UnknownStage, "'fuze'", "did you mean 'fuse'"
    ),
    Row("explain", lambda: minductor.explain(f, X).why_not("a", "b"), errors.UnknownKernel, "'a'", "The names are"),
    Row("to_fx", lambda: minductor.to_fx(5), *PROGRAM),
    Row("to_fx", lambda: minductor.to_fx(f), *FEW),
    Row("to_fx", lambda: minductor.to_fx(f, X, X), *MANY),
    Row("to_fx", lambda: minductor.to_fx(f, X, options=["fuse"]), *OPTIONS),
    Row("to_fx", lambda: minductor.to_fx(f, X, options={"target": 90}), errors.UnknownTarget, "90", "sm_90"),
    Row("to_fx", lambda: minductor.to_fx(f, X, dynamic_shapes="x"), errors.BadArgument, "dynamic_shapes", "export"),
    Row("export", lambda: minductor.export(5, (X,), "a.zip"), *PROGRAM),
    Row("export", lambda: minductor.export(f, (), "a.zip"), *FEW),
    Row("export", lambda: minductor.export(f, X, "a.zip"), errors.BadArgument, "args of export", "as (x,)"),
    Row("export", lambda: minductor.export(f, (X,), 5), errors.BadArgument, "path of a package", NO_PATH),
    Row("export", lambda: minductor.export(f, (X,), b"a.zip"), errors.BadArgument, "path of a package", NO_PATH),
    Row("export", lambda: minductor.export(f, (X,), "a\0b"), errors.BadArgument, "null byte", NO_PATH),
    Row("export", lambda: minductor.export(f, (X,), NOBODY), errors.BadArgument, "not the home of a user", NO_PATH),
    Row("export", lambda: minductor.export(f, (X,), "a" * 999), errors.BadArgument, "too long", NO_PATH),
    Row("export", lambda: minductor.export(f, (X,), "."), errors.NotExportable, "is a folder", "Name a file"),
    Row("export", lambda: minductor.export(f, (X,), "no/a.zip"), errors.NotExportable, "is no folder", "Make"),
    Row("export", lambda: minductor.export(f, (X,), "a.zip", kwargs=[1]), errors.BadArgument, "kwargs", "by name"),
    Row("export", lambda: minductor.export(f, (X,), "a.zip", kwargs={"y": 1}), errors.BadCall, "'y'", "arguments"),
    Row("export", lambda: minductor.export(f, (X,), "a.zip", options=5), *OPTIONS),
    Row(
        "export",
        lambda: minductor.export(f, (X,), "a.zip", target=("cpu", "sm_90")),
        *(errors.NotExportable, "not on both", "one package for each kind of device"),
    ),
    Row("load", lambda: minductor.load("."), errors.PackageRefused, "it is a folder", "minductor.export wrote"),
    Row("load", lambda: minductor.load("/dev/null"), errors.PackageRefused, "no ordinary file", "minductor.export"),
    Row("load", lambda: minductor.load("missing.zip"), errors.PackageMissing, "no such file", "minductor.export"),
    Row(
        "load",
        lambda: minductor.load(HERE),
        errors.PackageRefused,
        "does not end with the seal",
        "export the program again",
    ),
    Row("load", lambda: minductor.load("a\0b"), errors.BadArgument, "null byte", NO_PATH),
    Row("load", lambda: minductor.load(NOBODY), errors.BadArgument, "not the home of a user", NO_PATH),
    Row("load", lambda: minductor.load(None), errors.BadArgument, "None (NoneType)", NO_PATH),
    *(
        Row(
            "register_backend", lambda b=b: minductor.register_backend(b), errors.BackendError, says, "docs/backends.md"
        )
        for b, says in ((5, "of the type int"), (None, "NoneType"), (Backend, "the class Backend"))
    ),
    *(
        Row("register_backend", lambda g=g: toy(**g), errors.BackendError, says, "docs/backends.md")
        for g, says in (
            ({"kind": 5}, "a kind is an identifier"),
            ({"kind": "cpu"}, "built in"),
            ({"targets": ("toy_1",)}, "no tuple of minductor.backends.Target"),
            ({"targets": [Target("toy_1", "toy")]}, "no tuple of minductor.backends.Target"),
            ({"passes": ("fuse",)}, "no tuple of minductor.backends.Pass"),
            ({"passes": (Pass(name="p", after="fuze", function="a:b", fingerprint="1"),)}, "the stages are lower"),
            ({"build": 5}, "its build is 5, and neither a function nor 'module:function'"),
            ({"load": "ab"}, "its load is 'ab', and neither a function nor 'module:function'"),
            ({"wrappers": {"python": 5}}, "its wrapper 'python' is 5"),
            ({"wrappers": ["python"]}, "no mapping"),
            ({"options": {"a": 1}}, "neither an instance of a dataclass"),
            ({"api_version": 0}, "states no version of the backend API"),
        )
    ),
    Row("unregister_backend", lambda: unregister_backend("toy"), errors.BackendError, "'toy'", "registered ones are"),
    Row("Options", lambda: Options(fuse="yes"), errors.BadOptionValue, "'yes' (str)", "a bool"),
    Row("Options", lambda: Options(wrapper="rust"), errors.BadOptionValue, "'rust'", "'python', 'cpp', 'fx'"),
    Row("Options", lambda: Options.parse(mode=5), errors.UnknownMode, "5", "The modes are"),
    Row("Options", lambda: Options.parse(options=["fuse"]), *OPTIONS),
    Row("Options", lambda: Options.parse(environ=["a"]), errors.BadArgument, "environ", "os.environ"),
    Row("Compiler", lambda: by(store=5), errors.BadArgument, "Compiler(store=...)", "cache_dir"),
    Row("Compiler", lambda: by(store="a"), errors.BadArgument, "Compiler(store=...)", "cache_dir"),
    Row("Compiler", lambda: by(trace="1"), errors.BadArgument, "Compiler(trace=...)", "options={'trace'"),
    Row("Compiler", lambda: by(observer=5), errors.BadArgument, "Compiler(observer=...)", "a function"),
    Row("Compiler", lambda: by(graph_pass=5), errors.BadArgument, "Compiler(graph_pass=...)", "a function"),
    Row("Compiler", lambda: by(rewrites=5), errors.BadArgument, "Compiler(rewrites=...)", "minductor.Rewrite"),
    Row("Compiler", lambda: by(rewrites=[5]), errors.BadArgument, "5 is no minductor.Rewrite", "a tuple of"),
    Row("Compiler", lambda: by(tuning_clock=5), errors.BadArgument, "Compiler(tuning_clock=...)", "a function"),
    Row("Compiler", lambda: by(environ=5), errors.BadArgument, "Compiler(environ=...)", "os.environ"),
    Row("Compiler", lambda: by(environ={"CXX": 5}), errors.BadArgument, "['CXX'] cannot be 5", "text"),
    Row("Compiler", lambda: minductor.Compiler()(5, []), errors.BadArgument, "graph of a backend", "GraphModule"),
    Row("control_deps", lambda: minductor.control_deps(5, f, X), errors.BadArgument, "deps", "a tensor"),
    Row("control_deps", lambda: minductor.control_deps([5], f, X), errors.BadArgument, "deps", "a tensor"),
    Row("control_deps", lambda: minductor.control_deps(X, 5, X), errors.BadArgument, "fn", "a function"),
    Row("control_deps", lambda: ordered(5, f), errors.BadArgument, "deps", "a tensor"),
    Row("control_deps", lambda: ordered(X, 5), errors.BadArgument, "fn", "a function"),
    Row("add_control_deps", lambda: behind(5, "x"), errors.BadArgument, "node", "torch.fx.Node"),
    Row("add_control_deps", lambda: behind("x", "sin"), errors.BadArgument, "node", "a call"),
    Row("add_control_deps", lambda: behind("mul", 5), errors.BadArgument, "deps", "nodes"),
    Row("add_control_deps", lambda: behind("mul", "sin"), errors.BadArgument, "needs mul", "do not depend"),
)


def with_environment(variable: str, value: str) -> object:
    return by(environ={**os.environ, variable: value})


CXX = "set CXX to"
ENVIRONMENT = (
    Row("CXX", lambda: with_environment("CXX", "g++ '"), errors.CompilerNotFound, "No closing quotation", CXX),
    Row("CXX", lambda: with_environment("CXX", "nosuch"), errors.CompilerNotFound, "no program 'nosuch'", CXX),
    Row("CXX", lambda: with_environment("CXX", "/dev"), errors.CompilerNotFound, "no program '/dev'", CXX),
    Row("CXX", lambda: with_environment("CXX", "true"), errors.CompilerBroken, "wrote no file", CXX),
    Row("CXX", lambda: with_environment("CXX", "false"), errors.CompilerBroken, "status 1 and no text", CXX),
    Row("CXX", lambda: with_environment("CXX", "cat"), errors.CompilerBroken, "invalid option", CXX),
    Row("CXX", lambda: with_environment("CXX", "g++ --no"), errors.CompilerBroken, "unrecognized", CXX),
    Row("PATH", lambda: with_environment("PATH", "/dev"), errors.CompilerNotFound, "tried g++", "install one"),
    Row(
        "MINDUCTOR_CACHE_DIR", lambda: with_environment("MINDUCTOR_CACHE_DIR", "a\0"), errors.BadArgument, "0", NO_PATH
    ),
    Row(
        "MINDUCTOR_CACHE_DIR", lambda: with_environment("MINDUCTOR_CACHE_DIR", NOBODY), errors.BadArgument, "~", NO_PATH
    ),
    Row("MINDUCTOR_TRACE", lambda: with_environment("MINDUCTOR_TRACE", "9"), errors.BadOptionValue, "'9'", "dir:PATH"),
)


def processes() -> set[str]:
    """The children of this process that run."""
    found = set[str]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.add(folder.name)
    return found


def our_threads() -> frozenset[threading.Thread]:
    """The threads that run code of minductor or of a pool of processes; torch starts some at a first compile."""
    modules = (
        (thread, getattr(getattr(thread, "_target", None), "__module__", None)) for thread in threading.enumerate()
    )
    named = ((thread, str(module or type(thread).__module__)) for thread, module in modules)
    return frozenset(
        thread for thread, module in named if module.startswith(("minductor", "concurrent", "multiprocessing"))
    )


def state() -> Mapping[str, object]:
    """What a refusal could have changed in this process."""
    return {
        "environ": dict(os.environ),
        "path": tuple(sys.path),
        "folder": os.getcwd(),
        "filters": tuple(warnings.filters),
        "modules": sys.modules.keys() & {"syntax", "bytes", "imports", "leaves"},  # what cannot be imported
        "grad": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "random": torch.get_rng_state().tolist(),
        "backends": kinds(),
        "alive": our_threads(),
        "hook": sys.excepthook,
        "processes": processes(),
    }


def changed(before: Mapping[str, object]) -> set[str]:
    """The names of what is not as it was. A thread of an earlier test may have ended meanwhile; none may be new."""
    alive: Any = before["alive"]
    after = {**state(), "alive": alive | our_threads()}
    return {name for name in before if before[name] != after[name]}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory of its own, and one for temporary files, that are both empty afterwards."""
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    for folder in (work, temporary):
        folder.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("MINDUCTOR_TRACE", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    minductor.minductor.reset()
    yield work
    minductor.minductor.reset()
    torch._dynamo.reset()


def left(place: Path) -> list[str]:
    """Every file and folder that was written, but for the cache of what was sound."""
    return sorted(str(path) for folder in (place, place.parent / "temporary") for path in folder.rglob("*"))


@pytest.mark.parametrize("row", [*TORCH_COMPILE, *PYTHON, *ENVIRONMENT], ids=lambda row: row.door)
def test_a_function_refuses_it_in_one_line(row: Row, place: Path) -> None:
    before = state()
    with pytest.raises((errors.MinductorError, BackendCompilerFailed)) as caught:
        row.call()
    error: Any = caught.value
    if isinstance(error, BackendCompilerFailed):  # Dynamo wraps what a backend raises, and shows its text
        assert str(error.inner_exception) in str(error)
        error = error.inner_exception
    assert type(error) is row.error
    assert isinstance(error, minductor.MinductorError)
    assert row.says.format(row.door) in f"{error.what} {error.why}"
    assert row.hint in error.hint
    assert len(str(error).splitlines()) == 1 + sum(map(bool, (error.where, error.why, error.hint)))
    assert left(place) == []
    assert changed(before) == set()


# --- command lines ------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A command line in a folder with FILES, the exit code, and a piece of what it says."""

    line: str
    code: int
    says: str
    environ: Mapping[str, str] = {}


FILES = {
    "good.py": "import torch\n"
    "def f(x): return x.sin() + 1\n"
    "def g(x, y): return x @ y\n"
    "def h(x): raise ValueError('mine')\n"
    "def i(x): return x.sin() @ torch.ones(5)\n"
    "def j(x): return x\n"
    "rows = {name: (torch.ones(3),) for name in 'fghi'}\n"
    "def example_inputs(): return {**rows, 'j': [1]}\n",
    "syntax.py": "def f(x)\n    return x\n",
    "bytes.py": "\udcff",
    "imports.py": "import nosuchmodule\n",
    "leaves.py": "import sys\nsys.exit(3)\n",
    "inputs.py": "def f(x): return x\ndef example_inputs():\n    return (nosuchname,)\n",
    "number.py": "def f(x): return x\nexample_inputs = 5\n",
}
NOT_OK = "minductor cannot compile for the CPU here"

LINES = (
    Line("explain", 2, "the following arguments are required: FILE.py::FUNCTION"),
    Line("explain good.py", 2, "does not read FILE.py::FUNCTION"),
    Line("explain none.py::f", 2, "none.py does not exist"),
    Line("explain good.py::ff", 2, "did you mean 'f'?"),
    Line("explain good.py::f --target sm90", 2, "did you mean 'sm_90'?"),
    Line("explain good.py::f --stage fuze", 2, "no stage 'fuze': did you mean 'fuse'?"),
    Line("explain good.py::g", 2, "missing a required argument: 'y'"),
    Line("explain good.py::h", 1, "good.py::h fails: ValueError: mine (good.py:4)"),
    Line("explain good.py::i", 1, "good.py::i fails: "),
    Line("explain good.py::j", 2, "gives a list for j, not a tuple"),
    Line("explain syntax.py::f", 2, "SyntaxError: expected ':' (syntax.py:1)"),
    Line("explain bytes.py::f", 2, "bytes.py cannot be imported: SyntaxError"),
    Line("explain imports.py::f", 2, "ModuleNotFoundError: No module named 'nosuchmodule' (imports.py:1)"),
    Line("explain leaves.py::f", 2, "leaves.py cannot be imported: SystemExit: 3 (leaves.py:2)"),
    Line("explain inputs.py::f", 2, "NameError: name 'nosuchname' is not defined (inputs.py:3)"),
    Line("explain number.py::f", 2, "number.py has no example_inputs()"),
    Line("explain good.py::f", 1, "option 'trace' does not take '9'", {"MINDUCTOR_TRACE": "9"}),
    Line("heuristics", 2, "the following arguments are required: command"),
    Line("heuristics teach x", 2, "invalid choice: 'teach'"),
    Line("heuristics learn none.jsonl", 1, "these measurements cannot be read"),
    Line("heuristics learn syntax.py", 1, "this line is no measurement"),
    Line("heuristics learn bytes.py", 1, "these measurements cannot be read"),
    Line("heuristics collect rows --out no/a.jsonl", 1, "the measurements cannot be written"),
    Line("cache frob", 2, "invalid choice: 'frob'"),
    Line(f"cache --dir {NOBODY}", 1, "is not the home of a user"),
    Line("cache", 1, "is not the home of a user", {"MINDUCTOR_CACHE_DIR": NOBODY}),
    Line("unpack", 2, "the following arguments are required: package, folder"),
    Line("unpack none.zip out", 1, "there is no such file"),
    Line("unpack good.py out", 1, "does not end with the seal"),
    Line("unpack . out", 1, "it is a folder"),
    Line("doctor frob", 2, "unrecognized arguments: frob"),
    Line("doctor", 1, f"{NOT_OK}: compiler, openmp", {"CXX": "g++ '"}),
    Line("doctor", 1, f"{NOT_OK}: compiler, openmp", {"CXX": "nosuch"}),
    Line("doctor", 1, f"{NOT_OK}: compiler, openmp", {"CXX": "true"}),
    Line("doctor", 1, f"{NOT_OK}: compiler, openmp", {"CXX": "false"}),
    Line("doctor", 1, f"{NOT_OK}: settings", {"MINDUCTOR_TRACE": "9"}),
    Line("doctor", 1, f"{NOT_OK}: cache", {"MINDUCTOR_CACHE_DIR": NOBODY}),
    Line("bench --only nosuchcase", 2, "nosuchcase"),
    Line("bench --backends indutcor", 2, "no backend is named 'indutcor': did you mean 'inductor'?"),
    Line("bench --rounds 0", 2, "at least one round"),
    Line("bench --json no/a.json", 2, "no is no folder"),
    Line("bench --counts --text .", 2, "is a folder"),
    Line("demo --backend indutcor", 2, "no backend is named 'indutcor': did you mean 'inductor'?"),
)


@pytest.mark.parametrize("row", LINES, ids=lambda row: row.line)
def test_a_command_refuses_it_in_few_lines(
    row: Line, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (place / name).write_text(text, errors="surrogateescape")
    files = left(place)
    for variable, value in row.environ.items():
        monkeypatch.setenv(variable, value)
    before = state()
    try:
        code: object = main(row.line.split())
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr().err
    assert code == row.code
    assert row.says in said
    assert "Traceback" not in said
    spoken = [line for line in said.splitlines() if not line.startswith(("usage: ", " "))]
    assert len(spoken) == 1, said
    assert left(place) == files
    assert changed(before) == set()


def test_an_unset_path_is_the_systems(place: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "PATH"}
    torch._dynamo.reset()
    assert torch.equal(torch.compile(f, backend=minductor.Compiler(environ=environ))(X), f(X))


def test_a_compiler_that_is_no_program(place: Path) -> None:
    file = place.parent / "g++"
    file.write_text("no program")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(BackendCompilerFailed) as caught:
        with_environment("CXX", str(file))
    assert isinstance(caught.value.inner_exception, errors.CompilerBroken)
    assert "cannot be started: Exec format error" in caught.value.inner_exception.why


def test_an_unpacked_package_never_replaces_a_folder(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    minductor.export(f, (X,), "sound.zip")
    (place / "taken").mkdir()
    for folder, says in (("taken", "File exists"), ("no/deep", "No such file")):
        assert main(["unpack", "sound.zip", folder]) == 1
        said = capsys.readouterr().err
        assert says in said and "a folder that does not exist yet" in said
    assert list((place / "taken").iterdir()) == []
