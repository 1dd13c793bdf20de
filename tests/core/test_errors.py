"""Errors: every class has its code and docstring, survives a process border, and says what a user needs."""

import inspect
import pickle
import warnings

import pytest

from minductor.core import errors
from minductor.core.errors import MinductorError, MinductorWarning

# One of each, made as its raisers make it.
EXAMPLES = (
    errors.MinductorError("it broke", where="a.py:3", why="so", hint="do this"),
    errors.UnknownOption("fuze", ("fuse",)),
    errors.BadOptionValue("fuse", 1, "a bool", origin="MINDUCTOR_FUSE"),
    errors.UnknownMode("fast", ("default",)),
    errors.UnknownTarget("sm90", ("sm_90",)),
    errors.BackendError("no backend of kind 'x'"),
    errors.UnknownKernel("k9", ("k0", "add_0", "")),
    errors.CompilerNotFound(("g++", "clang++")),
    errors.CompileFailed(
        "expected ';'", kept="/tmp/k.cpp", line=7, quoted="  float x = 1", user_line="model.py:12", command="g++ k.cpp"
    ),
    errors.LoadFailed("/a/b.so", "undefined symbol"),
    errors.StoreRefused("/cache", "it belongs to uid 7"),
    errors.CorruptEntry("/cache/ab", "hash mismatch"),
    errors.StoreUnwritable("/cache", "read-only file system"),
    errors.CacheMended("/cache/locks/ab", "it is a folder", "/cache/quarantine"),
    errors.WaitsForAnother("process 7 (python train.py)", "300"),
    errors.NoCache("/home/me", "it holds other files", hint="name another folder"),
    errors.CacheUnmarked("/cache", "/cache/minductor-cache"),
    errors.UnsupportedInput("x", "a sparse tensor"),
    errors.RanInEager("'x' is a sparse tensor", where="model.py:3"),
    errors.FallbackRefused("aten.sort", "it has no rule"),
    errors.LyingSchema("toy::op", "a new tensor", "its result is a view of x"),
    errors.VerifyError("fuse", "defined before used", "buf1 is read first"),
    errors.StageFailed("schedule", KeyError("x")),
    errors.MemoryFault("free buf0 is missing", "buf0: gone in step 2", where="step 2 (mm)"),
    errors.NonFiniteResult("kernel log_0 stores NaN in 1 of 4 elements of buf0 (at model.py:3)"),
    errors.BrokenBackend("toy-package", "toy", RuntimeError("no driver")),
    errors.InterpretRefused("add_0", 5000, 1000),
    errors.ChoiceByClock("bits"),
    errors.Unwritable("Triton has no digamma of f32"),
    errors.TargetElsewhere("sm_90"),
    errors.ImaginedDevice("a gradient"),
    errors.NotNative("higher_order.scan"),
    errors.WrapperReplaced("higher_order.scan"),
    errors.UnreadablePlan("its schema is 0"),
    errors.NotExportable("a dataclass", "it has no name in a package", hint="return a dict"),
    errors.PackageRefused("/model.md", "it is cut short"),
    errors.PackageElsewhere("/model.md", "this machine has no avx2"),
    errors.WrongInput("input x", "it has 3 dimensions"),
    errors.MinductorWarning("careful"),
    errors.BadArgument("options", ["fuse"], "a mapping"),
    errors.BadCall("f(x)", "missing a required argument: 'x'"),
    errors.UnknownStage("fuze", ("fuse",)),
    errors.CompilerBroken("/usr/bin/false", "it wrote no file"),
    errors.PackageMissing("/model.md"),
    errors.NothingCompiled("f"),
    errors.NoAheadOfTime(),
    errors.WrongRewrite("attention", "matmul_1", "it fails", where="model.py:3"),
    errors.FrozenChanged("layers.0.weight"),
    errors.FrozenTraining(),
    errors.BadHeuristic("this line is no measurement", where="rows.jsonl:3", why="it is empty"),
)


CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, MinductorError)]


def test_each_class_has_a_code_of_its_own_and_an_example() -> None:
    assert len({kind.code for kind in CLASSES}) == len(CLASSES)
    assert {type(example) for example in EXAMPLES} == set(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_entry(kind: type[MinductorError]) -> None:
    assert len(kind.code) == 5 and kind.code.startswith("MD")
    assert kind.__doc__ and kind.__doc__.rstrip().endswith(".")
    assert "code" in vars(kind), "inherited: it would share its parent's code"


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
def test_text_and_round_trip(error: MinductorError) -> None:
    assert str(error).startswith(f"[{error.code}] {error.what}")
    assert error.hint or type(error) in (errors.BackendError, errors.MinductorWarning), "nobody knows what to do"
    for part in (error.where, error.why, error.hint):
        assert part in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def test_kinds_are_those_that_programs_catch() -> None:
    for kind in (errors.UnknownOption, errors.BadOptionValue, errors.UnknownMode, errors.UnknownTarget):
        assert issubclass(kind, ValueError)


def test_warning_is_shown_with_its_hint() -> None:
    with pytest.warns(MinductorWarning, match="minductor cache clear"):
        warnings.warn(errors.CorruptEntry("/cache/ab", "hash mismatch"), stacklevel=1)


def test_failed_compile_quotes_the_line_and_names_the_users() -> None:
    text = str(EXAMPLES[8])
    for part in ("/tmp/k.cpp:7: float x = 1", "model.py:12", "expected ';'", "g++ k.cpp"):
        assert part in text
