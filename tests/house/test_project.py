"""What pyproject.toml promises is there, and what is there is promised."""

import tomllib

from tests.house.rules import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_plugin_and_its_entry_point_exist_together() -> None:
    # pytest dies at start when the entry point names a module that is not there. It is named exactly like the module:
    # otherwise an installed plugin and `pytest_plugins` in conftest.py would register twice.
    promised = PROJECT["entry-points"].get("pytest11", {})
    exists = (ROOT / "pytest_plugin" / "plugin.py").is_file()
    assert promised == ({"pytest_plugin.plugin": "pytest_plugin.plugin"} if exists else {})


def test_backend_entry_point_names_a_callable() -> None:
    import minductor

    assert PROJECT["entry-points"]["torch_dynamo_backends"] == {"minductor": "minductor:minductor"}
    assert callable(minductor.minductor)


def test_license_frees_generated_code() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "may be used, changed and distributed without\ncondition" in text and "its prelude" in text


def test_both_versions_agree() -> None:
    import minductor

    assert PROJECT["version"] == minductor.__version__


def test_typed_and_header_files_are_packaged() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    headers = ["codegen/cpp/*.h", "runtime/launch/*.h", "runtime/launch/include/*.h"]
    page = ["page/*.html", "page/*.css", "page/*.js"]
    assert data == {"minductor": ["py.typed", *headers, *page], "pytest_plugin": ["goldens/*.html"]}
    packaged = {
        path.suffix
        for package in ("minductor", "pytest_plugin")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert packaged <= {".py", ".typed", ".h", ".html", ".css", ".js"}


def test_a_test_that_hangs_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert 60 <= project["tool"]["pytest"]["ini_options"]["faulthandler_timeout"] < 600
