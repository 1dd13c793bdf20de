"""A campaign of random programs goes on where it was, and what it finds stands by itself."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_plugin.adapters.eager import Eager, Session
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.random_programs.campaign import Campaign, verdict_lines
from pytest_plugin.strategies import campaign_program
from tests.plugin.conftest import Run


class Wrong(Eager):
    """Takes no sine."""

    def session(self, folder: Path, device: Device) -> Session:
        made = super().session(folder, device)
        compile_right = made.compile

        def compile_wrong(fn: Any, options: Any, dynamic: Any) -> Any:
            function = compile_right(fn, options, dynamic)
            return lambda *args: tuple(value + 1 if value.is_floating_point() else value for value in function(*args))

        made.compile = compile_wrong
        return made


def test_programs_are_the_same_each_time() -> None:
    assert [campaign_program(n).text for n in range(3)] == [campaign_program(n).text for n in range(3)]


@pytest.mark.long
def test_a_bad_program_becomes_a_script_that_runs_alone(tmp_path: Path) -> None:
    campaign = Campaign(Wrong(), tmp_path, campaign_program)
    number = next(
        n for n in range(9) if any("float" in i.expression for i in campaign_program(n).inputs) and n % 3 != 2
    )
    found, script = campaign.judged(number, tmp_path)
    assert found.word == "wrong"
    text = Path(script).read_text()
    assert "pytest" not in text and "hypothesis" not in text and 'backend="eager"' in text
    assert len(text.splitlines()) < 60
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_a_campaign_goes_on_and_counts_what_died(tmp_path: Path) -> None:
    torch.manual_seed(0)
    campaign = Campaign(Eager(), tmp_path, campaign_program)
    campaign.run(0, lambda line: None)
    assert [record["word"] for record in campaign.records()] == ["begun", "right"]
    with campaign.journal.open("a") as file:
        file.write(json.dumps({"number": 1, "word": "begun", "why": "", "script": ""}) + "\n")
    campaign.run(0, lambda line: None)
    words = {(record["number"], record["word"]) for record in campaign.records()}
    assert (1, "died") in words and (2, "begun") in words
    lines = list(verdict_lines(campaign.records()))
    assert lines[0].startswith("fuzz     3 programs: ") and lines[1].startswith("  died ")


def test_the_same_error_is_made_small_once(tmp_path: Path) -> None:
    class Failing(Eager):
        def session(self, folder: Path, device: Device) -> Session:
            made = super().session(folder, device)
            made.compile = refusing
            return made

    def refusing(fn: Any, options: Any, dynamic: Any) -> Any:
        def call(*args: Any) -> Any:
            raise RuntimeError("never heard of it")

        return call

    campaign = Campaign(Failing(), tmp_path, campaign_program)
    for _ in range(2):
        campaign.run(0, lambda line: None)
    ended = [record for record in campaign.records() if record["word"] != "begun"]
    assert [record["word"] for record in ended] == ["error", "error"]
    assert len({record["script"] for record in ended}) == 1 and len(list(tmp_path.glob("*.py"))) == 1


def test_the_option_runs_no_tests(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_x():\n    assert 0")
    result = run("--fuzz=0")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["fuzz     1 program: 1 *"])
    assert "test_x" not in result.stdout.str()
