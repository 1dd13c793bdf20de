"""Each launch and call of a wrapper stands right below its handle, in each language; a fault in that is found."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from minductor.codegen.wrapper.handle_comments import RULE, verify_handles
from minductor.core.errors import VerifyError
from minductor.driver import Compiled, Compiler
from minductor.ir.plan.plan import Plan
from minductor.pipeline import Stage

LANGUAGES = {"python": "py", "cpp": "cpp", "fx": "json"}


class Keeping(Compiler):
    """A compiler that keeps plans."""

    def run_stage(self, stage: Stage, value: Any, role: Any, env: Any) -> Any:
        result = super().run_stage(stage, value, role, env)
        if stage.gives == "plan":
            self.plan: Plan = result
        return result


def fn(x: Tensor) -> tuple[Tensor, Tensor]:
    """Equal kernels, calls, and a call in a region."""
    y = torch.cond(x.sum() > 0, lambda a: (a + 1) @ a, lambda a: a.sin(), (x,))
    return torch.cumsum(y, 0) @ y, (x * 2).cumsum(1)


def compiled(folder: Path, wrapper: str, **options: Any) -> tuple[Plan, str]:
    """The plan of `fn` and the text of its wrapper."""
    seen: list[Compiled] = []
    keeping = Keeping(observer=seen.append, is_dry=True, environ={"MINDUCTOR_CACHE_DIR": str(folder)})
    given = {"wrapper": wrapper, "verify": True, **options}
    torch._dynamo.reset()
    torch.compile(fn, backend=partial(keeping, options=given))(torch.rand(8, 8))
    return keeping.plan, seen[0].sources[f"wrapper.{LANGUAGES[wrapper]}"]


@pytest.mark.parametrize("wrapper", ["python", "cpp"])
def test_a_comment_that_is_missing_late_or_wrong_is_found(wrapper: str, tmp_path: Path) -> None:
    plan, text = compiled(tmp_path, wrapper)
    verify = partial(verify_handles, plan, language=LANGUAGES[wrapper])
    verify(text)
    lines = text.splitlines()
    mark = {"python": "# ", "cpp": "// "}[wrapper]
    places = [n for n, line in enumerate(lines) if line.strip().startswith(mark) and line.strip()[len(mark)].isdigit()]
    assert len(places) >= 5
    for place in places:
        faults = {
            "without": [*lines[:place], *lines[place + 1 :]],
            "below": [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]],
            "apart": [*lines[: place + 1], "", *lines[place + 1 :]],
            "other": [*lines[:place], f"{mark}99: x", *lines[place + 1 :]],
            "twice": [*lines[:place], lines[place], lines[place + 1], *lines[place:]],
        }
        if "fused" not in lines[place + 1]:
            del faults["below"]  # what follows a call may name its result, and looks like the call
        for broken in faults.values():
            with pytest.raises(VerifyError, match=RULE):
                verify("\n".join(broken))


def test_the_handles_of_two_launches_are_not_swapped(tmp_path: Path) -> None:
    plan, text = compiled(tmp_path, "python")
    first, second = "# 1: sum_1, gt", "# 5: mul"
    assert first in text and second in text
    swapped = text.replace(first, "?").replace(second, first).replace("?", second)
    with pytest.raises(VerifyError, match="does not launch"):
        verify_handles(plan, swapped, "py")


def test_a_node_of_a_graph_without_its_handle_or_origins_is_found(tmp_path: Path) -> None:
    plan, text = compiled(tmp_path, "fx")
    verify_handles(plan, text, "json")
    count = 0
    for change in ({"handle": None}, {"handle": 1}, {"origins": ["other"]}):
        for number, node in enumerate(json.loads(text)["nodes"]):
            if node.get("handle", 1) == 1:
                continue
            graph = json.loads(text)
            graph["nodes"][number] |= change
            with pytest.raises(VerifyError, match=RULE):
                verify_handles(plan, json.dumps(graph), "json")
            count += 1
    assert count >= 6


@pytest.mark.parametrize("wrapper", ["python", "cpp"])
def test_provenance_0_leaves_all_comments_out(wrapper: str, tmp_path: Path) -> None:
    _, text = compiled(tmp_path, wrapper, provenance=0)
    plain = compiled(tmp_path, wrapper)[1].splitlines()
    kept = [line for line in plain if not line.strip().startswith(("# ", "// "))]
    assert text.splitlines() == kept
