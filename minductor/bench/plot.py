"""The benchmark's PNG: how many times faster than eager each case runs.

Takes: `Results` and a path. Gives: a picture with a panel for each of the micro cases, the models and frozen inference.
Refuses: to work without matplotlib (the `test` extra), before anything is measured.
"""

import importlib.util
from pathlib import Path
from typing import Any

from minductor.bench.bench_results import Results, Running
from minductor.bench.bench_tables import faster
from minductor.bench.claims import EAGER


def missing() -> str | None:
    """A sentence that says what a plot needs and this machine lacks; None if nothing is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        return "--plot needs matplotlib: pip install 'minductor[test]'"
    return None


def bars(axes: Any, cases: list[Running], backends: tuple[str, ...]) -> None:
    """Draws a group of bars for each case: a bar for each backend, with its interval as a line."""
    height = 0.8 / max(1, len(backends))
    for place, backend in enumerate(backends):
        found = [(row, faster(EAGER, backend, case.samples, "cpu")) for row, case in enumerate(cases)]
        known = [(row, estimate) for row, estimate in found if estimate is not None]
        axes.barh(
            [row + (place - (len(backends) - 1) / 2) * height for row, _ in known],
            [estimate.value for _, estimate in known],
            height,
            xerr=[
                [max(0.0, estimate.value - estimate.low) for _, estimate in known],
                [max(0.0, estimate.high - estimate.value) for _, estimate in known],
            ],
            label=backend,
        )
    axes.set_yticks(range(len(cases)), [case.case.partition("/")[2] for case in cases])
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("times faster than eager (CPU time)")
    axes.legend()


def draw(results: Results, path: Path) -> None:
    """Write the picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    backends = tuple(name for name in results.backends if name != EAGER)
    groups = [
        [case for case in results.running if case.case.startswith(kind)] for kind in ("micro/", "model/", "frozen/")
    ]
    groups = [group for group in groups if group]
    # Figure without pyplot: no window system is looked for, and nothing global is left behind.
    figure = Figure(figsize=(9, 1.5 + 0.32 * sum(len(group) + 2 for group in groups)), layout="constrained")
    FigureCanvasAgg(figure)
    ratios = [len(group) + 2 for group in groups]
    for axes, group in zip(
        figure.subplots(len(groups), height_ratios=ratios, squeeze=False)[:, 0], groups, strict=True
    ):
        bars(axes, group, backends)
    figure.savefig(path, format="png", dpi=120)
