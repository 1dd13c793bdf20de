"""The benchmark's tables as text.

Takes: `Results` and their `Claim`s. Gives: aligned lines. Refuses: nothing; what is missing is a dash.

>>> print(align([["case", "ms"], ["softmax", "1.5"]]))
case      ms
softmax  1.5
"""

import statistics

from minductor.bench.bench_results import FirstCall, Results, Running, Samples
from minductor.bench.bootstrap import Estimate, ratio
from minductor.bench.claims import EAGER, OURS, PEER, Claim, mean_speedup

FROZEN = "frozen/"  # how the names of these cases begin


def align(rows: list[list[str]]) -> str:
    """Columns padded to their widest cell: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def show(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def faster(over: str, than: str, samples: dict[str, Samples], clock: str) -> Estimate | None:
    """How many times as much time `over` takes as `than`, round by round, on the "cpu" or the "wall" clock."""
    if over == than or over not in samples or than not in samples:
        return None
    return ratio(getattr(samples[over], clock), getattr(samples[than], clock))


def verdict_of(case: str, claims: tuple[Claim, ...]) -> str:
    """The worst verdict of the claims about one case."""
    verdicts = {claim.verdict for claim in claims if claim.text.startswith(f"{case}:")}
    return next((verdict for verdict in ("FAIL", "pass (within noise)", "pass") if verdict in verdicts), "-")


def milliseconds(case: Running | FirstCall, backend: str) -> str:
    if backend in case.failures or backend not in case.samples:
        return "error" if backend in case.failures else "-"
    return f"{statistics.median(case.samples[backend].wall) * 1e3:.2f}"


def subject(backends: tuple[str, ...]) -> str:
    """The backend whose times the ratios compare with the others': ours, or the last one if ours did not run."""
    return OURS if OURS in backends else backends[-1]


def running_table(results: Results, claims: tuple[Claim, ...]) -> str:
    ours = subject(results.backends)
    usual = [case for case in results.running if not case.case.startswith(FROZEN)]
    header = ["case", *(f"{name} ms" for name in results.backends)]
    rows = [[*header, f"{EAGER}/{ours} cpu", f"{PEER}/{ours} cpu", f"{PEER}/{ours} wall", "ULP (eager's)", "verdict"]]
    for case in usual:
        accuracy = case.accuracy.get(ours)
        row = [case.case, *(milliseconds(case, name) for name in results.backends)]
        row += [show(faster(EAGER, ours, case.samples, "cpu"))]
        row += [show(faster(PEER, ours, case.samples, clock)) for clock in ("cpu", "wall")]
        row += ["-" if accuracy is None else f"{accuracy.error:.1f} ({accuracy.eager:.1f})"]
        rows.append([*row, verdict_of(case.case, claims)])
    return align(rows)


def speedup_table(results: Results, group: str, clock: str) -> str:
    """How many times faster than eager each backend runs the cases of a group, and the geometric means.

    `group` is how the names of the cases begin. `clock` is "cpu" or "wall".
    """
    others = [name for name in results.backends if name != EAGER]
    rows = [["case", "eager ms", *others]]
    for case in results.running:
        if case.case.startswith(group):
            ratios = [
                "error" if name in case.failures else show(faster(EAGER, name, case.samples, clock)) for name in others
            ]
            eager = case.samples.get(EAGER)
            took = "-" if eager is None else f"{statistics.median(getattr(eager, clock)) * 1e3:.2f}"
            rows.append([case.case, took, *ratios])
    means = [show(mean_speedup(results, group, EAGER, name, clock)) for name in others]
    return align([*rows, ["geometric mean", "", *means]])


def first_call_table(results: Results) -> str:
    rows = [["first call", "cache", "backend", "runs", "CPU s", "wall s"]]
    for case in results.first_calls:
        for name, samples in case.samples.items():
            cpu, wall = statistics.median(samples.cpu), statistics.median(samples.wall)
            rows.append([case.case, case.cache, name, str(len(samples.cpu)), f"{cpu:.2f}", f"{wall:.2f}"])
        rows += [[case.case, case.cache, name, "0", "error", "error"] for name in case.failures]
    return align(rows)


def claims_table(claims: tuple[Claim, ...]) -> str:
    bounds = [f"{claim.bound.side} {claim.bound.limit:.4g}" for claim in claims]
    rows = [[c.text, bound, show(c.measured), c.verdict] for c, bound in zip(claims, bounds, strict=True)]
    return align([["claim", "bound", "measured [95%]", "verdict"], *rows])


def failures(results: Results) -> list[str]:
    """A line for each case that a backend could not run, with the error."""
    found = [
        f"{case.case}: {name}: {text}"
        for case in (*results.first_calls, *results.running)
        for name, text in case.failures.items()
    ]
    return list(dict.fromkeys(found))


def render(results: Results, claims: tuple[Claim, ...]) -> str:
    """The whole report."""
    parts = ["\n".join(f"{key}: {value}" for key, value in results.machine.items())]
    if results.first_calls:
        parts.append("First calls in fresh processes; imports are left out unless named\n" + first_call_table(results))
    if any(not case.case.startswith(FROZEN) for case in results.running):
        parts.append(
            f"Running: medians of {results.rounds} interleaved rounds (wall ms); ratios are paired by round, "
            "with 95% bootstrap intervals; the claims use CPU time\n" + running_table(results, claims)
        )
    if any(case.case.startswith(FROZEN) for case in results.running):
        parts += [
            f"Inference: times faster than eager by {clock} time, medians of {results.rounds} interleaved rounds\n"
            + speedup_table(results, FROZEN, clock)
            for clock in ("cpu", "wall")
        ]
    mean = mean_speedup(results, "micro/", PEER, OURS)
    if mean is not None:
        parts.append(f"Geometric mean over the micro cases, {PEER}/{OURS} CPU time: {show(mean)}")
    if claims:
        failed = sum(claim.verdict == "FAIL" for claim in claims)
        parts.append(f"Claims: {len(claims) - failed} of {len(claims)} hold\n{claims_table(claims)}")
    if failures(results):
        parts.append("Could not run\n" + "\n".join(failures(results)))
    if results.removed:
        parts.append("Removed cases\n" + "\n".join(f"{name}: {why}" for name, why in results.removed.items()))
    return "\n\n".join(parts)
