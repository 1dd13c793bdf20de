"""What an import loads and starts, seen from a fresh process."""

import json
import subprocess
import sys

import pytest

from tests.house.rules import ROOT

# module: (what it may load of ours, what else it must not load)
IMPORTS = {
    "minductor": ({"minductor", "minductor.version"}, {"torch", "sympy", "filelock", "multiprocessing"}),
    "minductor.options": (
        {"minductor", "minductor.version", "minductor.core", "minductor.core.errors", "minductor.options"},
        {"torch", "sympy", "filelock", "multiprocessing"},
    ),
    "minductor.runtime.store.store": (
        {
            *("minductor", "minductor.version", "minductor.core", "minductor.core.errors", "minductor.core.warn"),
            *("minductor.runtime", "minductor.runtime.store", "minductor.runtime.store.store"),
            "minductor.runtime.store.cache_folder",
            "minductor.runtime.user_paths",
        },
        {"torch", "sympy", "triton", "multiprocessing", "concurrent"},
    ),
}

# Run by the fresh process. A line of /proc/PID/stat names the parent second after the parenthesised command.
OBSERVE = """
import json, sys
before = set(sys.modules)
{statement}
import contextlib, os, pathlib, threading
children = []
for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        fields = path.read_text().rpartition(")")[2].split()
        children += [fields] if int(fields[1]) == os.getpid() else []
print(json.dumps([sorted(set(sys.modules) - before), threading.active_count(), len(children)]))
"""


def observe(statement: str) -> tuple[set[str], int, int]:
    """The modules that a statement loads, the threads that then run, and the child processes."""
    done = subprocess.run(
        [sys.executable, "-c", OBSERVE.format(statement=statement)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    modules, threads, children = json.loads(done.stdout)
    return set(modules), threads, children


@pytest.mark.parametrize("module", IMPORTS)
def test_import_loads_and_starts_nothing(module: str) -> None:
    ours, banned = IMPORTS[module]
    modules, threads, children = observe(f"import {module}")
    assert {name for name in modules if name.partition(".")[0] == "minductor"} <= ours
    assert not {name for name in modules if name.partition(".")[0] in banned}
    assert (threads, children) == (1, 0)


def test_observation_sees_what_is_started() -> None:
    modules, threads, children = observe(
        "import subprocess, threading, time\n"
        "subprocess.Popen(['sleep', '1'])\n"
        "threading.Thread(target=time.sleep, args=(1,), daemon=True).start()"
    )
    assert "subprocess" in modules
    assert (threads, children) == (2, 1)


def test_public_names_are_those_that_exist() -> None:
    import minductor

    assert set(minductor.__all__) == {*minductor.PUBLIC, "minductor"}
    for name, module in minductor.PUBLIC.items():
        text = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert f"class {name}" in text or f"def {name}" in text
