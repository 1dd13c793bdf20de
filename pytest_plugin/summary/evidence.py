"""What one test proved, and the checks of what its markers declare.

Takes the runs of a test and the keywords of its markers. Gives the errors as one text, and a summary that travels on
the test's report. Refuses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_plugin.devices.device_choice import Device
from pytest_plugin.goldens.golden import Goldens
from pytest_plugin.oracle import counts, memory
from pytest_plugin.oracle.repro_script import CompiledCall
from pytest_plugin.oracle.run import Run
from pytest_plugin.vocabulary import amount

PROOFS = ("launch", "extern")


@dataclass(slots=True)
class Evidence:
    """What is collected while one test runs.

    Attributes:
        runs: The runs of `compiled`.
        calls: The calls of `compiled`, also those that failed.
        goldens: The value of the fixture `golden`, once it is used.
        counts_checked: The number of runs whose counts were checked.
        memory_checked: The number of runs whose memory was checked.
    """

    runs: list[Run] = field(default_factory=list[Run])
    calls: list[CompiledCall] = field(default_factory=list[CompiledCall])
    goldens: Goldens | None = None
    counts_checked: int = 0
    memory_checked: int = 0

    def count_errors(self, shown: str, device: Device | None, declared: Mapping[str, Any], *, is_counted: bool) -> str:
        """Returns which declared counts are wrong, or that nothing ran; or an empty text.

        Args:
            shown: The test's name.
            device: The device of the test.
            declared: The counts that its markers declare, for each of its runs.
            is_counted: Whether the test has the marker `counts`.
        """
        if is_counted and not any(run.graphs for run in self.runs):
            return f"counts differ  {shown}\n  nothing was captured: no graph was compiled"
        lines: list[str] = []
        for number, run in enumerate(self.runs, 1):
            found = counts.count_errors(declared, run.report) if run.graphs else []
            if len(self.runs) > 1 and found:
                lines.append(f"run {number} of {len(self.runs)}")
            lines += found
            self.counts_checked += is_counted
        if lines:
            return "\n  ".join((f"counts differ  {shown}", *lines))
        if device is None or declared.get("kernels") == 0:
            return ""
        for run in self.runs:
            if device.kind == "compile":
                if not (run.report.kernels or run.report.externs):
                    return (
                        f"nothing compiled  {shown}\n  {amount(len(run.graphs), 'graph')} captured for "
                        f"{device.target}, with neither a kernel nor an extern; declare counts(kernels=0) to allow it"
                    )
            elif not any(kind in PROOFS for kind, _ in run.events):
                return (
                    f"nothing ran  {shown}\n  {amount(len(run.graphs), 'graph')} compiled, and neither a kernel nor "
                    f"an extern was launched on {device.id}; declare counts(kernels=0) to allow it"
                )
        return ""

    def memory_errors(self, shown: str, declared: Mapping[str, Any]) -> str:
        """Returns which declared facts of memory are wrong, or an empty text; they are for each of the test's runs."""
        if not any(run.graphs for run in self.runs):
            return f"memory differs  {shown}\n  nothing was captured: no graph was compiled"
        lines = [line for run in self.runs for line in memory.memory_errors(declared, run)]
        self.memory_checked += len(self.runs)
        return "\n  ".join((f"memory differs  {shown}", *lines)) if lines else ""

    def summary(self, device: Device | None) -> dict[str, Any]:
        """Returns the summary as plain values, which xdist can carry."""
        events = Counter(kind for run in self.runs for kind, _ in run.events)
        return {
            "device": device.id if device is not None else "",
            "runs": len(self.runs),
            "numeric": sum(run.results is not None for run in self.runs),
            "graphs": sum(len(run.graphs) for run in self.runs),
            "hits": sum(graph.was_hit for run in self.runs for graph in run.graphs),
            "launches": events["launch"],
            "externs": events["extern"],
            "assembled": sum(len(run.assembly) for run in self.runs),
            "counts": self.counts_checked,
            "memory": self.memory_checked,
            "goldens": [check.plain() for check in self.goldens.checks] if self.goldens else [],
        }
