"""The bounds that minductor must meet, and whether a run meets them.

Takes: `Results`. Gives: a `Claim` for each bound, with a verdict. Refuses: nothing. A case that was not measured has no
claim; the claims about a case that minductor could not run fail.

A bound on a ratio or a time is missed only if the whole 95% interval is on the wrong side of it. All ratios are of CPU
time and paired by round, since other programs on the machine disturb the wall clock more than the CPU clock.

>>> judge("twice as fast", Bound(2.0, "at least"), Estimate(1.9, 1.7, 2.1)).verdict
'pass (within noise)'
"""

from collections.abc import Mapping
from dataclasses import dataclass

from minductor.bench.bench_results import Accuracy, FirstCall, Results, Running
from minductor.bench.bootstrap import Estimate, geometric_mean, median, paired, ratio
from minductor.bench.cases import FLAGSHIP, GPT_TRAINING

OURS = "minductor"
PEER = "inductor"
EAGER = "eager"
AOT = "aot_eager"
OURS_FROZEN = "minductor-frozen"
PEER_FROZEN = "inductor-frozen"

FLAGSHIP_SPEEDUP = 2.0
MICRO_GEOMETRIC_MEAN = 1.3
MICRO_VS_EAGER = 0.9
MODEL_VS_PEER = 0.97
COLD_SECONDS: Mapping[str, float] = {FLAGSHIP: 1.2, GPT_TRAINING: 12.0}
WARM_VS_AOT_EAGER = 1.3
FROZEN_GEOMETRIC_MEANS: Mapping[str, float] = {OURS: 1.15, OURS_FROZEN: 1.35}
FROZEN_VS_BEST = 0.97
TRAINING_GEOMETRIC_MEAN = 1.15
TRAINING_VS_BEST = 1.0
WARM_WITH_IMPORTS = "warm+imports"  # shown in the tables; no claim uses it


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit, and the side on which results must be: "at least" or "at most"."""

    limit: float
    side: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A bound, the measured value, and the verdict: "pass", "pass (within noise)" or "FAIL"."""

    text: str
    bound: Bound
    measured: Estimate | None
    verdict: str
    reason: str = ""


def judge(text: str, bound: Bound, measured: Estimate) -> Claim:
    """Compares a figure with its bound."""
    match bound.side:
        case "at least":
            is_met, is_possible = measured.value >= bound.limit, measured.high >= bound.limit
        case "at most":
            is_met, is_possible = measured.value <= bound.limit, measured.low <= bound.limit
        case _:
            raise ValueError(f"a bound is at least or at most, not {bound.side!r}")
    return Claim(text, bound, measured, "pass" if is_met else "pass (within noise)" if is_possible else "FAIL")


def speedup(case: Running | FirstCall, over: str, ours: str = OURS) -> Estimate | None:
    """The CPU time of `over` divided by ours; None if one of them has no samples."""
    if ours not in case.samples or over not in case.samples:
        return None
    return ratio(case.samples[over].cpu, case.samples[ours].cpu)


def speed_claim(case: Running, over: str, limit: float, ours: str = OURS) -> Claim | None:
    named = "ours" if ours == OURS else ours
    text, bound = f"{case.case}: CPU time of {over} over {named}", Bound(limit, "at least")
    if ours in case.failures:
        return Claim(text, bound, None, "FAIL", case.failures[ours])
    measured = speedup(case, over, ours)
    return None if measured is None else judge(text, bound, measured)


def running_claims(case: Running) -> list[Claim | None]:
    if case.case == FLAGSHIP:
        return [speed_claim(case, over, FLAGSHIP_SPEEDUP) for over in (PEER, EAGER)]
    if case.case.startswith("micro/"):
        return [speed_claim(case, EAGER, MICRO_VS_EAGER)]
    if case.case.startswith("frozen/"):
        return [
            speed_claim(case, best(case, PEER_FROZEN), FROZEN_VS_BEST, OURS_FROZEN),
            accuracy_claim(case, OURS_FROZEN),
        ]
    if case.case.startswith("training/"):
        return [speed_claim(case, best(case, PEER), TRAINING_VS_BEST)]
    return [speed_claim(case, PEER, MODEL_VS_PEER)]


def best(case: Running, peer: str) -> str:
    """The faster one of eager and another backend; eager where one of them has no samples."""
    if not {EAGER, peer} <= case.samples.keys():
        return EAGER
    return EAGER if ratio(case.samples[EAGER].cpu, case.samples[peer].cpu).value < 1 else peer


def mean_speedup(results: Results, group: str, over: str, ours: str, clock: str = "cpu") -> Estimate | None:
    """The geometric mean of the time of `over` divided by that of `ours`, over the cases of a group that ran both.

    `group` is how the names of the cases begin, as "micro/". `clock` is "cpu" or "wall". None if no case ran both.
    """
    ratios = [
        paired(getattr(case.samples[over], clock), getattr(case.samples[ours], clock))
        for case in results.running
        if case.case.startswith(group) and {ours, over} <= case.samples.keys()
    ]
    return geometric_mean(ratios) if ratios else None


def mean_claims(results: Results) -> list[Claim]:
    """The claims about geometric means over the micro cases, of frozen inference and of training."""
    wanted = [("micro cases: geometric mean over TorchInductor", "micro/", PEER, OURS, MICRO_GEOMETRIC_MEAN)]
    wanted += [("training cases: geometric mean over eager", "training/", EAGER, OURS, TRAINING_GEOMETRIC_MEAN)]
    wanted += [
        (f"frozen cases: geometric mean of {ours} over eager", "frozen/", EAGER, ours, limit)
        for ours, limit in FROZEN_GEOMETRIC_MEANS.items()
    ]
    found = [(text, limit, mean_speedup(results, group, over, ours)) for text, group, over, ours, limit in wanted]
    return [judge(text, Bound(limit, "at least"), mean) for text, limit, mean in found if mean is not None]


def accuracy_claim(case: Running, ours: str = OURS) -> Claim | None:
    """The error against float64 is at most twice eager's, or 4 ULP if that is more. It is exact: it has no interval."""
    worst: Accuracy | None = case.accuracy.get(ours)
    if worst is None:
        return None
    bound = Bound(worst.bound, "at most")
    measured = Estimate(worst.error, worst.error, worst.error)
    verdict = "pass" if worst.is_close else "FAIL"
    named = "" if ours == OURS else f" of {ours}"
    return Claim(
        f"{case.case}: error{named} against float64 in ULP", bound, measured, verdict, f"result {worst.result}"
    )


def first_call_claim(case: FirstCall) -> Claim | None:
    if case.cache == WARM_WITH_IMPORTS or (case.cache == "cold" and case.case not in COLD_SECONDS):
        return None
    if case.cache == "cold":
        text, bound = f"{case.case}: cold first call, CPU seconds", Bound(COLD_SECONDS[case.case], "at most")
    else:
        text, bound = f"{case.case}: warm first call over aot_eager", Bound(WARM_VS_AOT_EAGER, "at most")
    if OURS in case.failures:
        return Claim(text, bound, None, "FAIL", case.failures[OURS])
    if OURS not in case.samples or (case.cache == "warm" and AOT not in case.samples):
        return None
    ours = case.samples[OURS].cpu
    return judge(text, bound, median(ours) if case.cache == "cold" else ratio(ours, case.samples[AOT].cpu))


def check(results: Results) -> tuple[Claim, ...]:
    """Every claim that this run has measurements for, in the order of the cases."""
    found: list[Claim | None] = [first_call_claim(case) for case in results.first_calls]
    for case in results.running:
        found += [*running_claims(case), accuracy_claim(case)]
    return (*(claim for claim in found if claim is not None), *mean_claims(results))
