"""Where files lie: names that occur once, small folders, and no circle of imports."""

from collections import Counter
from pathlib import PurePath

import pytest

from tests.house.circles import circles, file_imports, folder_imports, packages
from tests.house.rules import ROOT, source_files

MAX_FILES = 7  # directly in a package's folder that has sub-packages
# The files of the two top folders, by name: what a newcomer sees first.
TOP_FILES = {
    "minductor": "__init__ __main__ backend_options backends driver options pipeline target version",
    "pytest_plugin": "__init__ fixtures limits markers plugin session short_names stash strategies vocabulary xfail",
}

IMPORTS = file_imports({path: (ROOT / path).read_text(encoding="utf-8") for path in source_files()})


def repeated(paths: tuple[str, ...]) -> list[str]:
    """The names of several files of one top folder."""
    counted = Counter((PurePath(path).parts[0], PurePath(path).stem) for path in paths)
    return [name for (_, name), times in counted.items() if times > 1 and not name.startswith("__")]


def crowded(paths: tuple[str, ...]) -> list[str]:
    """The folders with sub-packages that hold too many files, or, at the top, files that are not named."""
    folders: dict[str, set[str]] = {}
    for path in paths:
        folders.setdefault(str(PurePath(path).parent), set()).add(PurePath(path).stem)
    with_packages = {str(PurePath(folder).parent) for folder in folders}
    return [
        folder
        for folder, names in folders.items()
        if (names - set(TOP_FILES[folder].split()) if folder in TOP_FILES else len(names - {"__init__"}) > MAX_FILES)
        and folder in with_packages
    ]


def test_a_file_name_occurs_once() -> None:
    assert repeated(source_files()) == []


def test_folders_with_packages_hold_few_files() -> None:
    assert crowded(source_files()) == []


def test_names_of_the_top_files_exist() -> None:
    missing = {f"{folder}/{name}.py" for folder, names in TOP_FILES.items() for name in names.split()}
    assert missing - set(source_files()) == set()


def test_files_form_no_circle() -> None:
    assert circles(IMPORTS) == []


@pytest.mark.parametrize("folder", packages(IMPORTS))
def test_packages_form_no_circle(folder: str) -> None:
    assert circles(folder_imports(IMPORTS, folder)) == []


def test_layout_checks_can_fail() -> None:
    assert repeated(("minductor/a/x.py", "minductor/b/x.py", "pytest_plugin/x.py", "minductor/__init__.py")) == ["x"]
    many = tuple(f"minductor/a/{name}.py" for name in "stuvwxyz")
    assert crowded((*many, "minductor/a/b/x.py")) == ["minductor/a"]
    assert crowded(many) == []
    assert crowded(("minductor/other.py", "minductor/core/x.py")) == ["minductor"]


def test_circles_are_found() -> None:
    texts = {
        "minductor/a/x.py": "if TYPE_CHECKING:\n    from minductor.b.y import Y",
        "minductor/b/y.py": "def f():\n    from minductor.b import z",
        "minductor/b/z.py": "from ..a import v",
        "minductor/a/v.py": "from .x import f",
        "minductor/a/w.py": "import minductor.b.y",
    }
    files = file_imports(texts)
    assert circles(files) == [["minductor.a.v", "minductor.a.x", "minductor.b.y", "minductor.b.z"]]
    texts["minductor/a/v.py"] = ""
    assert circles(file_imports(texts)) == []
    assert circles(folder_imports(file_imports(texts), "minductor")) == [["minductor.a", "minductor.b"]]
    texts = {"minductor/__init__.py": "from minductor.a import x", "minductor/a/x.py": "from minductor import b"}
    assert circles(folder_imports(file_imports(texts), "minductor")) == [["minductor.__init__", "minductor.a"]]
