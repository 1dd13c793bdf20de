"""`python benchmarks/cost_model_plot.py`: cost_model.png from the tables in cost_model.md.

Each point is a recipe of a kernel: the microseconds that the model predicts over those that were measured; a filled
point is the recipe that the compiler takes. The line is where both are equal. Left a GPU, right a CPU (one thread).
Needs matplotlib (the `test` extra).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("cost_model.md")
TIMES = re.compile(r"(\w+) ([\d.]+) / ([\d.]+)")
SECTIONS = {"GPU": 0, "CPU": 16}  # by section the microseconds of a call that prices leave out


def points(text: str, call: int) -> Iterator[tuple[float, float, bool]]:
    """The measured and predicted time of each recipe in the tables of a section, and whether it is the one taken.

    `call`: what a call takes beside the kernel.
    """
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for cell in cells:
            for name, measured, predicted in TIMES.findall(cell):
                yield float(measured), float(predicted) + call, name in cells


def draw(axes: Any, title: str, found: list[tuple[float, float, bool]]) -> None:
    for is_taken, look in ((False, {"facecolors": "none", "edgecolors": "tab:blue"}), (True, {"color": "tab:orange"})):
        chosen = [(measured, predicted) for measured, predicted, taken in found if taken == is_taken]
        axes.scatter(*zip(*chosen, strict=True), s=14, label="taken" if is_taken else "not taken", **look)
    ends = [min(m for m, _, _ in found), max(m for m, _, _ in found)]
    axes.plot(ends, ends, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured, us", ylabel="predicted, us", title=title)
    axes.legend()


def main() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    parts = dict(re.findall(r"^## (GPU|CPU)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    figure, panels = pyplot.subplots(1, len(SECTIONS), figsize=(11, 5))
    for axes, (section, call) in zip(panels, SECTIONS.items(), strict=True):
        draw(axes, section, list(points(parts[section], call)))
    figure.tight_layout()
    figure.savefig(PAGE.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
