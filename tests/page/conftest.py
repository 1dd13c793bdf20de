"""The pages that the tests of this folder read and walk through, and the browser in which they do."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import minductor
from minductor.api.explain import Explanation
from minductor.bench import models
from tests.house.rules import ROOT
from tests.page.browser import Browser, missing


class Made(NamedTuple):
    """A page: its file, its text, the document in it, and what it was made of."""

    path: Path
    text: str
    document: dict[str, Any]
    explanation: Explanation


class Step(torch.nn.Module):
    """A model with its loss: what a training step differentiates."""

    def __init__(self, workload: models.Workload) -> None:
        super().__init__()
        self.module = workload.module
        self.loss_fn = workload.loss_fn

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.loss_fn(self.module(*inputs))


def layer_norm(target: str = "cpu") -> Explanation:
    """The example of the README, in the file that the page shows."""
    from minductor.api.explain import load_function

    fn, inputs = load_function(str(ROOT / "docs" / "layer_norm.py") + "::layer_norm")
    return minductor.explain(fn, *inputs, options={"target": target})


def gpt() -> Explanation:
    workload = models.make("gpt", size="bench")
    return minductor.explain(Step(workload), *workload.inputs)


MAKE: dict[str, Callable[[], Explanation]] = {
    "layer_norm": layer_norm,
    "gpt": gpt,
    "sm_90": lambda: layer_norm("sm_90"),
}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """Makes the page of a name, once in a run."""
    known: dict[str, Made] = {}

    def make(name: str) -> Made:
        if name not in known:
            path = tmp_path_factory.mktemp("page") / f"{name}.html"
            explanation = MAKE[name]()
            explanation.html(path)
            text = path.read_text(encoding="utf-8")
            known[name] = Made(path, text, data_of(text), explanation)
        return known[name]

    return make


def data_of(text: str) -> dict[str, Any]:
    """The document in the text of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A browser without a window. MINDUCTOR_PICTURES names a folder that gets pictures of what the tests do."""
    if why := missing():
        pytest.skip(why)
    browser = Browser(os.environ.get("MINDUCTOR_PICTURES", ""))
    yield browser
    browser.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser; a test that leaves an error in its console fails."""
    chromium.errors()
    yield chromium
    assert chromium.errors() == []
