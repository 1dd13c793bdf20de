"""The comment above each launch and call of a wrapper: the handle of the plan's line, and the ATen nodes behind it.

Takes lines of a plan. Gives the comment's text, and the check that a wrapper has all of them. Refuses (VerifyError), if
the option `verify` is set, a wrapper with a launch or call whose handle is missing, or does not stand right above it.

>>> list(handle_comment("#", 3, (Origin("mul", "aten.mul.Tensor"),)))
['# 3: mul']
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from minductor.core.errors import VerifyError
from minductor.ir.plan.plan import ExternLine, KernelLine, LaunchLine, Plan, lines_with_groups
from minductor.ir.plan.storage_lives import used_tensors
from minductor.ir.program.nodes import Origin

RULE = "each launch and call of a wrapper stands right below its handle"
# Patterns are compiled when they are used: most compiles check no wrapper.
_COMMENT = r"\s*(?:#|//) (\d+)(?:: \S.*)?"  # Python's and C++'s
_IS_NO_CALL = r"\s*(?:#|//|del |return |[\w.]+\.reset\(\);|$)"
_HEAD = r'\s*(?:def |extern "C" )'  # of a line that defines or declares a function


def handle_comment(mark: str, handle: int, origins: tuple[Origin, ...]) -> Iterator[str]:
    """The comment above a launch or a call; `mark` begins a comment in the wrapper's language, and "" asks for none."""
    if mark:
        nodes = ", ".join(origin.node for origin in origins)
        yield f"{mark} {handle}: {nodes}" if nodes else f"{mark} {handle}"


def verify_handles(plan: Plan, text: str, language: str) -> None:
    """Checks the handles of a wrapper's text in a language: "py", "cpp" or "json" (a graph of torch.fx)."""
    for fault in (_graph_faults if language == "json" else _text_faults)(plan, text):
        raise VerifyError("codegen", RULE, fault)


def _text_faults(plan: Plan, text: str) -> Iterator[str]:
    """Faults of a text: a comment must name a line of the plan that the next line of the text runs, and none lacks."""
    symbols = {line.id: line.symbol for line in plan.lines if isinstance(line, KernelLine)}
    calls = {line.handle: line for line in _calls(plan)}
    launched = {handle: symbols[line.kernel] for handle, line in calls.items() if isinstance(line, LaunchLine)}
    known, found, above = set(symbols.values()), Counter[int](), None
    for number, line in enumerate(text.partition("\nMD_PYTHON(")[0].splitlines(), 1):
        called = known.intersection(() if re.match(_HEAD, line) else re.findall(r"(\w+)\(", line))
        if above in launched and launched[above] not in called:
            yield f"line {number} does not launch {launched[above]}, handle {above}"
        elif above is not None and (re.match(_IS_NO_CALL, line) or not _is_of(calls.get(above), line)):
            yield f"line {number} is not what handle {above} calls"
        elif called and launched.get(above or 0) not in called:
            yield f"line {number} launches {', '.join(sorted(called))} without a handle above it"
        comment = re.fullmatch(_COMMENT, line)
        above = int(comment[1]) if comment else None
        found.update([] if above is None else [above])
    yield from _count_faults(plan, found)


def _is_of(call: LaunchLine | ExternLine | None, text: str) -> bool:
    """Whether a line of text names a tensor of a call; True for calls without tensors, and for a choice."""
    names = () if call is None else (*used_tensors(call), *(call.results if isinstance(call, ExternLine) else ()))
    return not any(names) or not set(names).isdisjoint(re.findall(r"\w+", text))


def _graph_faults(plan: Plan, text: str) -> Iterator[str]:
    """Faults of a graph as JSON: each node of it that launches or calls has the handle and the origins of a line."""
    from minductor.ir.artefact.fx_graph import parse_graph  # most compiles have no such graph

    origins = {line.handle: tuple(origin.node for origin in line.origins) for line in _calls(plan)}
    pending, found = [parse_graph(text)], Counter[int]()
    while pending:
        part = pending.pop()
        pending += part.graphs
        for node in part.nodes:
            if node.handle is None:
                if node.target == "minductor.launch":
                    yield f"{node.name} has no handle"
                continue
            found.update([node.handle])
            if origins.get(node.handle) != node.origins:
                yield f"{node.name} comes from {', '.join(node.origins)}, which is not what handle {node.handle} does"
    yield from _count_faults(plan, found)


def _count_faults(plan: Plan, found: Counter[int]) -> Iterator[str]:
    """Faults in how often handles were found: once each; those of a choice's variants and of a choice at most once."""
    yield from (f"handle {handle} stands there {times} times" for handle, times in found.items() if times > 1)
    for part in _parts(plan):
        for line in part.lines:
            if isinstance(line, LaunchLine | ExternLine) and line.handle not in found:
                yield f"handle {line.handle} is missing"


def _calls(plan: Plan) -> Iterator[LaunchLine | ExternLine]:
    """Each launch and call of a plan, its regions and its variants."""
    for part in _parts(plan):
        yield from (line for line in lines_with_groups(part) if isinstance(line, LaunchLine | ExternLine))


def _parts(plan: Plan) -> Iterator[Plan]:
    yield plan
    for region in plan.regions:
        yield from _parts(region)
