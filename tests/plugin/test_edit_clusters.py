"""Differences of many goldens are few edits, and each edit can be accepted by itself."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_plugin.devices.capabilities import BROWSERS
from pytest_plugin.goldens import review
from pytest_plugin.goldens.canonical import canonical
from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.edit_clusters import cluster_edits, content_with_edits, golden_changes
from pytest_plugin.goldens.golden_file import Golden, Header, parse
from pytest_plugin.goldens.report_page import report_page, side_by_side

KERNEL = """\
void k(const float* in0, float* out1) {{
  for (int64_t {i} = 0; {i} < {n}; ++{i}) {{
    const float {x} = in0[{i}];
    // a remark
    out1[{i}] = {x} * 2.0f;
  }}
}}
"""


def kernel(i: str = "i0", x: str = "x0", n: int = 8) -> str:
    return KERNEL.format(i=i, x=x, n=n)


def disagreement(
    old: str, new: str, name: str = "a", facts: tuple[str, str] = ("", ""), file: bool = True
) -> Disagreement:
    own = f"golden/c/cpu/{name}.kernel.cpp"
    contents = [
        Golden(Header(f"t.py::{name}", "cpu", "kernel", "canonical", fact), text).render("cpp")
        for text, fact in zip((old, new), facts, strict=True)
    ]
    found = own if file else ""
    return Disagreement(
        f"t.py::{name}",
        "cpu",
        "kernel",
        "canonical",
        "cpp",
        found,
        own,
        old,
        new,
        *facts,
        contents[0] if file else "",
        contents[1],
    )


def faster(text: str) -> str:
    return text.replace("2.0f", "3.0f")


def checked(text: str) -> str:
    return re.sub(r"( +)(out1\[.*)", r"\1check();\n\1\2", text)


def test_the_same_change_of_other_names_and_sizes_is_one_edit() -> None:
    many = [disagreement(text := kernel(f"i{n}", f"x{n}", n), faster(text), f"k{n}") for n in range(1, 9)]
    edits = cluster_edits([*many, disagreement(kernel(), checked(kernel()), "other")])
    assert [(edit.lines(), len(edit.files)) for edit in edits] == [
        (["- 2", "+ 3"], 8),
        (["+ check ( ) ;"], 1),
    ]


def test_facts_and_new_files_are_edits_too() -> None:
    same = kernel()
    edits = cluster_edits(
        [
            disagreement(same, faster(same), "a", ("kernels=1", "kernels=2")),
            disagreement(same, same, "b", ("kernels=1", "kernels=2")),
            disagreement("", same, "c", file=False),
            disagreement(same, same.replace("// a remark", ""), "d"),
        ]
    )
    shown = {"\n".join(edit.lines()): edit.files for edit in edits}
    assert shown["- facts kernels 1->2"] == (0, 1)
    assert shown["+ a golden that was not there"] == (2,)
    assert shown["+ layout, comments and local names only"] == (3,)


def test_accepting_some_edits_makes_only_those() -> None:
    old = kernel()
    new = checked(faster(kernel("j", "y"))).replace("const float y", "const double y")
    d = disagreement(old, new, facts=("kernels=1", "kernels=2"))
    assert len(golden_changes(d)) == 3
    kinds = {"\n".join(edit.lines()): [place for _, place in edit.places] for edit in cluster_edits([d])}
    only = next(places for lines, places in kinds.items() if "double" in lines)
    merged = parse(content_with_edits(d, only), "cpp")
    assert merged.text == old.replace("const float x0", "const double x0") and merged.header.facts == "kernels=1"
    assert parse(content_with_edits(d, [-1]), "cpp").header.facts == "kernels=2"
    assert parse(content_with_edits(d, [-1]), "cpp").text == old
    every = [place for places in kinds.values() for place in places]
    assert content_with_edits(d, every) == d.new_content
    assert content_with_edits(d, [place for place in every if place >= 0]) != d.new_content


def test_what_is_accepted_is_equal_afterwards() -> None:
    old, new = kernel(), checked(faster(kernel("j", "y")))
    d = disagreement(old, new)
    merged = parse(
        content_with_edits(d, [place for edit in cluster_edits([d]) for _, place in edit.places][:-1]), "cpp"
    ).text
    left = golden_changes(disagreement(merged, new))
    assert len(left) == len(golden_changes(d)) - 1
    assert [line.text for line in canonical(merged, "cpp")] != [line.text for line in canonical(new, "cpp")]


def test_ten_thousand_changed_lines_are_one_edit() -> None:
    old = "\n".join(f"    const float x{n} = md_sin_f32(x{n - 1});" for n in range(10_000))
    (edit,) = cluster_edits([disagreement(old, old.replace("sin", "cos"))])
    assert len(edit.places) == 10_000


CHECKED = disagreement(kernel(), checked(kernel()), "b")
ANSWERS = [
    (["a", "r"], (0,)),
    (["r", "a"], (1,)),
    (["l"], (0, 1)),
    (["s", "?", "a", "q"], (0,)),
    ([], ()),
]


@pytest.mark.parametrize(("answers", "chosen"), ANSWERS)
def test_answers_choose_edits(answers: list[str], chosen: tuple[int, ...]) -> None:
    many = [disagreement(kernel(), faster(kernel()), f"k{n}") for n in range(2)]
    given, said = iter(answers), list[str]()
    found = review.ask_about([*many, disagreement(kernel(), checked(kernel()))], lambda _: next(given, ""), said.append)
    assert found == chosen and said[0].startswith("edit 1 of 2: 2 times in 2 goldens")
    assert ("golden differs  k0" in "\n".join(said)) == ("s" in answers)


def test_a_report_can_be_applied_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = [disagreement(kernel(), faster(kernel()), "a"), disagreement(kernel(), checked(faster(kernel())), "b")]
    for d in many:
        (tmp_path / d.own).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / d.own).write_text(d.old_content)
    (tmp_path / review.DATA).write_text(json.dumps(review.report_data(many)))
    assert review.main([str(tmp_path), "--list"]) == 0
    assert capsys.readouterr().out.count("edit ") == 2
    assert review.main([str(tmp_path), "--edits", "1", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"written  {many[0].own}", f"partly   {many[1].own}"]
    assert (tmp_path / many[0].own).read_text() == many[0].new_content
    assert parse((tmp_path / many[1].own).read_text(), "cpp").text == faster(kernel())
    with pytest.raises(SystemExit):
        review.main([str(tmp_path), "--edits", "3"])


def test_the_page_holds_its_data_and_loads_nothing() -> None:
    d = disagreement(kernel(), faster(kernel("j", "y")).replace("// a remark", "// </script>"), facts=("", "kernels=2"))
    text = report_page(review.report_data([d]), [d], "some/folder")
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    told = json.loads(found[1])
    assert told["folder"] == "some/folder" and told["goldens"][0]["facts"] == "kernels none->2"
    assert [edit["places"] for edit in told["edits"]] == [1, 1]
    assert told["goldens"][0]["rows"] == side_by_side(d)
    assert [row[4] for row in side_by_side(d) if row[0]] == ["    // </script>", "    out1[i0] = x0 * 3.0f;"]
    assert not re.search(r"(src|href)=", text) and "import(" not in text and "fetch(" not in text


@pytest.mark.needs("chromium")
def test_the_page_opens_in_a_browser(tmp_path: Path) -> None:
    both = [disagreement(kernel(), faster(kernel()), "a"), CHECKED]
    for d in both:
        (tmp_path / d.own).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / d.own).write_text(d.old_content)
    (tmp_path / review.DATA).write_text(json.dumps(review.report_data(both)))
    (tmp_path / "report.html").write_text(report_page(review.report_data(both), both, str(tmp_path)))
    browser = next(path for name in BROWSERS if (path := shutil.which(name)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]

    def shown(place: str) -> str:
        command = [browser, *options, f"file://{tmp_path}/report.html{place}"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    every = shown("")
    assert "2 goldens in 2 edits" in every and every.count('<tr class="differs">') == 1 and "2.0f" in every
    assert "accept edits with a" in every and every.count('class="example">in out1[i0] = x0 * 2.0f;') == 1
    filtered = shown("#filter=check&accept=2")
    assert len(re.findall("<div>\\d+: 1 time in 1 golden<", filtered)) == 1 and "<div>1:" not in filtered
    command = re.search('<code id="command">python -m pytest_plugin.goldens.review (.*?)</code>', filtered)
    assert command is not None
    assert review.main([*shlex.split(command[1]), "--root", str(tmp_path)]) == 0
    assert (tmp_path / CHECKED.own).read_text() == CHECKED.new_content
    assert (tmp_path / both[0].own).read_text() == both[0].old_content
