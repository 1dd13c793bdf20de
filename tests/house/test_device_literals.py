"""A test that is run once for each device names none: a tensor on a device of its own tests nothing on the others."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.rules import ROOT

FIXTURES = {"device", "minductor_device", "compiled"}
DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:\d+)?")
TAKE_DEVICES = ("to", "device", "set_default_device")  # functions whose positional arguments may be devices


def literals(text: str) -> Iterator[str]:
    """The calls in device-parametrised tests that name a device, each with its line."""
    for function in ast.walk(ast.parse(text)):
        if not (isinstance(function, ast.FunctionDef) and function.name.startswith("test")):
            continue
        if not FIXTURES & {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}:
            continue
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
            given = [keyword.value for keyword in call.keywords if keyword.arg == "device"]
            given += call.args if name in TAKE_DEVICES else []
            words = [node.value for value in given for node in ast.walk(value) if isinstance(node, ast.Constant)]
            if name == "cuda" or any(isinstance(word, str) and DEVICE.fullmatch(word) for word in words):
                yield f"line {call.lineno}: {ast.unparse(call)}: write device=device"


def test_no_test_of_each_device_names_one() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
    assert [f"{path.relative_to(ROOT)}: {why}" for path, text in texts.items() for why in literals(text)] == []


@pytest.mark.parametrize(
    "body",
    [
        "torch.ones(3, device='cuda')",
        "torch.ones(3, device=torch.device('cpu'))",
        "x.to('cuda:1')",
        "x.to(torch.float32, 'cpu')",
        "x.cuda()",
        "torch.set_default_device('cuda')",
        "compiled(lambda x: x + torch.ones(3, device='cpu'), x)",
    ],
)
@pytest.mark.parametrize("fixture", sorted(FIXTURES))
def test_a_literal_is_found(fixture: str, body: str) -> None:
    assert len(list(literals(f"def test_x({fixture}):\n    {body}"))) >= 1
    assert list(literals(f"class TestX:\n    def test_x(self, {fixture}):\n        y = 1\n        {body}"))


@pytest.mark.parametrize(
    "text",
    [
        "def test_x(device):\n    assert device == 'cpu' and torch.ones(3, device=device).cpu().to(torch.int)",
        "def test_x():\n    torch.ones(3, device='cuda')",
        "def make(device):\n    torch.ones(3, device='cuda')",
        "def test_x(device):\n    words('cuda')",
    ],
)
def test_what_names_no_device_or_is_on_one_only(text: str) -> None:
    assert list(literals(text)) == []
