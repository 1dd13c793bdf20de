"""A walk through pages in Chromium: from a user's line to all that it became and back, search, keyboard."""

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

import minductor
from minductor.api.explain import Verdict
from minductor.core.errors import UnknownKernel
from minductor.ir.report.refusals import MAX_DISTANCE, MAX_NEIGHBOURS, FinalNode, Refusals
from tests.page.browser import Browser
from tests.page.conftest import Made

Make = Callable[[str], Made]
PAGES = ("layer_norm", "gpt", "sm_90")
# A line of the user, and a word of the kernel's line that computes it.
LINES = {"layer_norm": "layer_norm(torch.nn", "gpt": "x = self.tokens(ids)", "sm_90": "layer_norm(torch.nn"}


def pinned_source(browser: Browser) -> list[str]:
    """The user's lines that shine."""
    return [line.strip() for line in browser.lit("source")]


@pytest.mark.parametrize("name", PAGES)
def test_from_a_users_line_to_its_kernel_and_back(browser: Browser, made: Make, name: str) -> None:
    browser.open(made(name).path)
    browser.click('[data-view="source"] .r', LINES[name])
    assert any(LINES[name] in line for line in pinned_source(browser))
    shown = {pane: browser.lit(pane) for pane in ("graph", "ir", "kernel", "wrapper")}
    assert all(shown.values()), f"one pane is dark: {shown}"
    # and back: from a line of the kernel that shines to the user's line
    browser.keys("\ue00c")  # Escape
    assert browser.lit("kernel") == [] == pinned_source(browser)
    computed = next(line for line in shown["kernel"] if re.search(r"\w+ = ", line))
    browser.click('[data-view="kernel"] .r', computed.strip())
    assert any(LINES[name] in line for line in pinned_source(browser))
    assert LINES[name] in browser.text("#trail")


@pytest.mark.parametrize("name", PAGES)
def test_pointing_lights_and_leaving_darkens(browser: Browser, made: Make, name: str) -> None:
    browser.open(made(name).path)
    browser.point('[data-view="wrapper"] .r', "# 1: ")
    assert browser.wait("return document.querySelectorAll('[data-view=\"source\"] .lit').length") > 0
    browser.point("header h1")
    browser.wait("return document.querySelectorAll('.lit').length === 0 || true")
    browser.point('[data-view="source"] .r', "import")
    browser.wait("return document.querySelectorAll('.lit').length === 0")


def test_a_kernel_lights_no_other_that_shares_a_node(browser: Browser, made: Make) -> None:
    page = made("gpt")
    graph = page.document["graphs"][1]
    kernel = next(
        one
        for one in graph["kernels"]
        if any(other is not one and {*one["nodes"]} & {*other["nodes"]} for other in graph["kernels"])
    )
    browser.open(page.path)
    browser.run("location.hash = arguments[0]", f"backward/{kernel['name']}")
    browser.wait("return document.querySelectorAll('[data-view=wrapper] .lit').length > 0")
    handles = [line for line in browser.lit("wrapper") if re.match(r" *# \d+: ", line)]
    assert [line.strip().partition(":")[0] for line in handles] == [f"# {kernel['handle']}"]
    ir = browser.run("return [...document.querySelectorAll('.side:last-child .lit')].map((e) => e.textContent)")
    heads = {found[2] for line in ir if (found := re.search(r"(kernel|extern) (\w+) ", line))}
    assert kernel["name"] in heads <= {kernel["name"], *(name for _, name, _ in kernel["joined"])}


def test_the_same_line_in_the_backward(browser: Browser, made: Make) -> None:
    browser.open(made("gpt").path)
    browser.click('[data-view="source"] .r', "x = x + self.attention")
    browser.click("#trail .chip", "in backward")
    assert browser.text('#graphs [aria-selected="true"]') == "backward"
    assert any("self.attention" in line for line in pinned_source(browser)) and browser.lit("kernel")


def test_two_stages_side_by_side(browser: Browser, made: Make) -> None:
    page = made("gpt")
    browser.open(page.path)
    (road, *_) = page.explanation.roads
    for step in road.steps:
        if step.name in ("inline", "fuse", "schedule"):
            browser.run("document.querySelector(`#timeline [data-stage=${arguments[0]}]`).click()", step.name)
            left, right = browser.run(
                """return [...document.querySelectorAll('.side')].map((side) =>
                    [...side.querySelectorAll('.r:not(.none)')].map((r) => [r.className, r.lastChild.textContent]))"""
            )
            assert [text for _, text in right] == step.text.splitlines()
            assert [text for kind, text in left if "gone" not in kind] == [
                text for kind, text in right if "new" not in kind
            ], "what is not marked is equal"
            assert len(left) != len(right) and any("new" in kind for kind, _ in right)


def test_the_differences_are_the_fewest(browser: Browser, made: Make) -> None:
    browser.open(made("layer_norm").path)
    for a, b, equal in (
        ([], [], 0),
        ([1, 2, 3], [1, 2, 3], 3),
        ([1, 2, 3, 4], [2, 4, 1, 3], 2),
        ([5, 1], [1, 5, 1], 2),
    ):
        pairs = browser.run("return minductor.differences(arguments[0], arguments[1])", a, b)
        assert len(pairs) == equal and all(a[i] == b[j] for i, j in pairs)
        assert pairs == sorted(pairs) and len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)


@pytest.mark.parametrize("name", PAGES)
def test_why_not_says_what_the_report_says(browser: Browser, made: Make, name: str) -> None:
    page = made(name)
    browser.open(page.path)
    for number, road in enumerate(page.explanation.roads):
        assert road.compiled is not None
        report = road.compiled.report
        names = [*(row[0] for row in report.joined), *(row[0] for row in report.nodes), *report.kernel_names]
        pairs = list(combinations(dict.fromkeys(names), 2))[:: 1 + len(names) // 12]
        assert len(pairs) > 10 or name != "gpt"
        answers = browser.run(
            "return arguments[1].map(([a, b]) => minductor.why(arguments[0], a, b))", number, [*map(list, pairs)]
        )
        assert [tuple(answer) for answer in answers] == [report.why_not(*pair) for pair in pairs]
        assert browser.run("return minductor.why(arguments[0], 'k999', 'k0')", number) is None
        with pytest.raises(UnknownKernel):
            report.why_not("k999", "k0")


@pytest.mark.parametrize("between", [0, 3, 4, 5, 64])
def test_why_not_knows_the_limits_of_fusion(browser: Browser, made: Make, between: int) -> None:
    """Readers of the same data, at the limits; and readers of other data, which count as nodes only."""
    browser.open(made("layer_norm").path)
    for storage in ("x", "y"):
        places = [
            ("k0", "", "", ("x",)),
            *((f"r{n}", "", "", (storage,)) for n in range(between)),
            ("k1", "", "", ("x",)),
        ]
        expected = Refusals(tuple(FinalNode(*row) for row in places), (), ()).why_not("k0", "k1")
        why = {"nodes": places, "joined": [], "refusals": []}
        limits = {"neighbours": MAX_NEIGHBOURS, "distance": MAX_DISTANCE}
        assert tuple(browser.run("return minductor.whyNot(...arguments)", why, limits, "k0", "k1")) == expected


def test_search_finds_everything(browser: Browser, made: Make) -> None:
    browser.open(made("gpt").path)
    for words, kind in (
        ("#2", "kernel"),
        ("native_layer_norm", "ATen node"),
        ("def split_heads", "source"),
        ("md_lanes<64>(0", "kernel"),
        ("empty_strided", "wrapper"),
        ("fuse", "stage"),
        ("must run between", "note"),
        ("buf10", "memory"),
    ):
        browser.keys("/")
        browser.keys(words)
        kinds = browser.wait("return [...document.querySelectorAll('#found div span')].map((e) => e.textContent)")
        assert any(found == kind for found in kinds), f"{words} finds {kinds}"
        browser.keys("\ue00c")
    browser.keys("/")
    browser.keys("zzz nothing has this")
    assert browser.text("#found") == "nothing"
    browser.keys("\ue00c")


def test_a_hit_stays_pinned_though_the_mouse_lies_on_something_else(browser: Browser, made: Make) -> None:
    browser.open(made("layer_norm").path)
    browser.run("addEventListener('pointerdown', (event) => { window.at = event; }, true)")
    for words, node in (("md_erf_f32(x", "gelu"), ("x2 + 1.0f", "add")):  # the key selects the words before
        browser.keys("/")
        browser.keys(words)
        browser.wait("return [...document.querySelectorAll('#found div span')].length")
        browser.click("#found div", words)
        # as Chromium does when the list closes, sooner or later: another element is below the mouse, which rests
        browser.run(
            "const { clientX, clientY } = window.at, place = { clientX, clientY, bubbles: true };"
            "for (const node of document.querySelectorAll('#cell-graph g.node')) {"
            "  node.dispatchEvent(new PointerEvent('pointerover', place));"
            "}"
        )
        assert browser.run("return [...document.querySelectorAll('#trail .chip')].map((e) => e.textContent)")[1] == node


def test_the_keyboard_does_all_that_its_help_says(browser: Browser, made: Make) -> None:
    browser.open(made("gpt").path)
    browser.keys("?")
    told = browser.wait("return [...document.querySelectorAll('#manual dt')].map((e) => e.textContent)")
    assert len(told) == len(set(told)) >= 15 and "BSD-3-Clause" in browser.text("#manual small")
    browser.keys("\ue00c")
    shown = {"g": "graph", "m": "memory", "s": "schedule", "w": "why", "a": "machine"}
    for key, pane in shown.items():
        browser.keys(key)
        assert browser.run("return !document.querySelector(`[data-view=${arguments[0]}]`).hidden", pane), key
        browser.run("document.activeElement.blur()")
    before = browser.text("#timeline .right")
    browser.keys("]")
    after = browser.text("#timeline .right")
    browser.keys("[")
    assert before == browser.text("#timeline .right") != after
    browser.keys("j")
    first = browser.text("#trail")
    browser.keys("j")
    assert browser.text("#trail") != first
    browser.keys("k")
    assert browser.text("#trail") == first
    browser.keys("t")
    assert browser.run("return document.documentElement.dataset.theme") == "dark"
    rows = "return document.querySelectorAll('.side .r').length"
    many = browser.run(rows)
    browser.keys("c")
    assert browser.run(rows) < many and browser.find(".fold", "equal lines")
    browser.keys("c")
    browser.keys("n")
    assert browser.text('#graphs [aria-selected="true"]') == "backward"
    browser.point("header h1")
    browser.keys("\ue00c")
    assert browser.run("return document.querySelectorAll('.lit').length") == 0
    assert set(told) >= {*shown, "[", "]", "j", "k", "t", "c", "n", "/", "?", "f", "0", "Escape"}


def test_a_pane_grows_and_the_machine_code_opens(browser: Browser, made: Make) -> None:
    if not made("layer_norm").document["graphs"][0]["machine"]:
        pytest.skip("needs objdump")
    browser.open(made("layer_norm").path)
    browser.tab("machine")
    assert browser.run("return document.querySelectorAll('[data-view=machine] details[open]').length") == 0, "closed"
    browser.click("[data-view=machine] summary")
    browser.wait("return document.querySelectorAll('[data-view=machine] .r').length > 100")
    browser.run("document.querySelector('#cell-wrapper .bar > .wide').click()")
    assert browser.run("return document.querySelectorAll('.cell:not(.whole)').length") == 5
    browser.click('[data-view="machine"] .r', "vfmadd") if _has_fma(made) else browser.click('[data-view="machine"] .r')
    browser.run("document.querySelector('#cell-wrapper .bar > .wide').click()")
    assert any("layer_norm(torch.nn" in line for line in pinned_source(browser))


def test_a_line_of_a_kernel_and_its_instructions_frame_each_other(browser: Browser, made: Make) -> None:
    if not made("layer_norm").document["graphs"][0]["machine"]:
        pytest.skip("needs objdump")
    browser.open(made("layer_norm").path)
    browser.tab("machine")
    browser.click('[data-view="kernel"] .r', "= md_erf_f32(")
    twins = browser.wait(
        "return [...document.querySelectorAll('[data-view=machine] .r.twin')].map((e) => e.textContent)"
    )
    assert len(twins) > 5 and browser.run(
        """const row = document.querySelector('[data-view=machine] .r.twin').getBoundingClientRect();
        const view = document.querySelector('[data-view=machine]').getBoundingClientRect();
        return row.top >= view.top && row.bottom <= view.bottom"""
    ), "it is in view"
    browser.click("[data-view=machine] .r.twin")
    (line,) = browser.run("return [...document.querySelectorAll('[data-view=kernel] .twin')].map((e) => e.textContent)")
    assert "md_erf_f32(" in line


def _has_fma(made: Make) -> bool:
    (machine,) = made("layer_norm").document["graphs"][0]["machine"]
    return any("vfmadd" in line for line in machine["lines"])


def test_a_link_leads_to_a_kernel_a_stage_or_a_node(browser: Browser, made: Make) -> None:
    path = made("gpt").path.as_uri()
    browser.driver.get(f"{path}#backward/k52")
    assert browser.text('#graphs [aria-selected="true"]') == "backward" and "k52" in browser.text("#trail")
    assert browser.run("return location.hash") == "#backward/k52"
    for place, shown in (("forward/schedule", "#timeline .right"), ("forward/gelu_1", "#trail")):
        browser.run("location.hash = arguments[0]", place)
        browser.wait(
            "return document.querySelector(arguments[0]).textContent.includes(arguments[1])", shown, place[8:12]
        )


def test_a_stage_that_moved_the_numbers_is_red(browser: Browser, tmp_path: Path) -> None:
    explanation = minductor.explain(torch.sin, torch.ones(3), check=True)
    (road,) = explanation.roads
    for moved, said in ((False, "every stage gives eager's numbers"), (True, "the numbers moved in fuse")):
        if moved:
            road.verdicts = [Verdict("inline", 0.0, 1e-4), Verdict("fuse", 0.5, 1e-4)]
        explanation.html(tmp_path / "page.html")
        browser.open(tmp_path / "page.html")
        assert said in browser.text("#facts")
        wrong = browser.run("return [...document.querySelectorAll('#timeline .wrong')].map((e) => e.textContent)")
        assert wrong == ["fuse"] * moved


def test_both_themes_come_from_the_system(browser: Browser, made: Make) -> None:
    for theme in ("dark", "light"):
        media: Any = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.driver.get(made("layer_norm").path.as_uri())
        assert browser.run("return document.documentElement.dataset.theme") == theme
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
