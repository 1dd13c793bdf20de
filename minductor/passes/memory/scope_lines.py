"""The lines of a plan that say where its partitions begin, and which GPU is the current device.

Takes the partitions of a program. Gives, by the number of a node, the lines that stand before this node. Refuses
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.ir.plan.plan import DeviceScopeLine, Line, Partition, PartitionLine, ScopeEndLine


def scope_lines(partitions: Sequence[Partition]) -> dict[int, tuple[Line, ...]]:
    """The lines before each node, by its number; the number behind the last node stands for the end.

    Entering a device costs as much as a small launch. So it is entered once if all partitions are on one device.
    """
    devices = {part.device for part in partitions} - {"", "cpu"}
    if not devices and not any(part.is_capturable for part in partitions):
        return {}
    has_one_scope = len(partitions) > 1 and len(devices) == 1
    found: dict[int, list[Line]] = {}
    start = 0
    for number, part in enumerate(partitions):
        here = found.setdefault(start, [])
        if has_one_scope and number == 0:
            here.append(DeviceScopeLine(*devices))
        here.append(PartitionLine(number))
        start += part.nodes
        if not has_one_scope and part.device in devices:
            here.append(DeviceScopeLine(part.device))
            found.setdefault(start, []).append(ScopeEndLine())
    if has_one_scope:
        found.setdefault(start, []).append(ScopeEndLine())
    return {number: tuple(lines) for number, lines in found.items()}
