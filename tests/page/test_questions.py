"""Five questions that the page answers by itself, each by the clicks of somebody who never saw it."""

from collections.abc import Callable

from tests.page.browser import Browser
from tests.page.conftest import Made

Make = Callable[[str], Made]


def ask(browser: Browser, words: str) -> None:
    """Types words into the search and takes the first hit."""
    browser.click("#search")
    browser.run("arguments[0].select()", browser.find("#search"))
    browser.keys(words)
    browser.wait("return document.querySelector('#found div[aria-selected=\"true\"]') !== null")
    browser.keys("\n")


def test_which_line_of_my_model_made_kernel_3(browser: Browser, made: Make) -> None:
    browser.open(made("gpt").path)
    ask(browser, "k3")
    assert "k3" in browser.text("#trail")
    lines = [line.strip() for line in browser.lit("source")]
    assert lines == [
        "x = x + self.attention(self.norm1(x))",
        "x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))",
    ]
    chips = browser.run("return [...document.querySelectorAll('#trail .chip')].map((e) => e.textContent)")
    assert any(chip.startswith("models.py:") and "self.tokens(ids)" in chip for chip in chips)


def test_why_were_these_two_not_fused(browser: Browser, made: Make) -> None:
    page = made("gpt")
    report = page.explanation.roads[0].compiled.report  # type: ignore[union-attr]
    browser.open(page.path)
    browser.click('.tab[data-tab="why"]')
    for name, field in (("k3", "#first"), ("k11", "#second")):
        browser.click(field)
        browser.keys(name)
    browser.click("#ask")
    assert tuple(browser.run("return [...document.querySelectorAll('#because li')].map((e) => e.textContent)")) == (
        report.why_not("k3", "k11")
    )
    assert "must run between them" in browser.text("#because")


def test_what_held_the_most_memory(browser: Browser, made: Make) -> None:
    page = made("gpt")
    browser.open(page.path)
    browser.click('.tab[data-tab="memory"]')
    graph = page.document["graphs"][0]
    assert browser.run("return Number(document.getElementById('peak').dataset.bytes)") == graph["memory"]["peak"]
    name = browser.text("#most")
    (storage,) = [s for s in graph["memory"]["storages"] if s["names"][0] == name]
    own = [s["bytes"] for s in graph["memory"]["storages"] if s["owner"] != "lent"]
    assert storage["bytes"] == max(own)
    browser.click(".holders tbody tr", name)
    assert browser.lit("source"), "the line that made it"
    browser.picture("memory", "#cell-graph")


def test_which_schedule_was_second_and_by_how_much(browser: Browser, made: Make) -> None:
    page = made("gpt")
    browser.open(page.path)
    kernels = page.document["graphs"][0]["kernels"]
    kernel = next(k for k in kernels if any("prices" in d for d in k.get("decisions", ())))
    (decision,) = [d for d in kernel["decisions"] if "prices" in d]
    browser.click('.tab[data-tab="schedule"]')
    told = browser.find(f'[data-kernel="{kernel["name"]}"] .second').text
    losses = decision["losses"]
    second = min((name for name in losses if name != decision["taken"]), key=losses.__getitem__)
    times = losses[second] / losses[decision["taken"]]
    assert times >= 2 and told.startswith(f"Second: {second}, {times:.1f} times as slow where it loses most (")
    more = 1e6 * (decision["prices"][second][1] - decision["prices"][decision["taken"]][1])
    assert f"+{more:.3g} µs in parallel" in told
    only = next(k for k in kernels if k.get("recipe") and not k["decisions"])
    assert "is the only legal recipe" in browser.find(f'[data-kernel="{only["name"]}"] .second').text


def test_where_does_this_exp_come_from(browser: Browser, made: Make) -> None:
    browser.open(made("gpt").path)
    ask(browser, "fused_amax_sub_exp")
    browser.click('[data-view="kernel"] .lit', "md_exp")
    (line,) = [line.strip() for line in browser.lit("source")]
    assert "cross_entropy" in line
    assert [node for node in browser.lit("graph") if "exp" in node]


def test_pictures_for_the_docs(browser: Browser, made: Make) -> None:
    """The walk that docs/ shows; with MINDUCTOR_PICTURES it leaves its pictures."""
    for theme in ("light", "dark"):
        browser.open(made("layer_norm").path, theme)
        if theme == "dark":
            browser.tab("machine")
        browser.click('[data-view="kernel"] .r', "md_erf_f32(x")
        assert browser.lit("graph") and browser.lit("source")
        browser.picture(f"layer_norm_{theme}")
    browser.open(made("gpt").path)
    ask(browser, "k3")
    browser.picture("graph", "#cell-graph")
