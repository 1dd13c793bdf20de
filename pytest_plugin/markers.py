"""The markers of the plugin: what each one takes, and what is wrong with a marker.

Takes a marker, and the devices of the run. Gives what is wrong with the marker, as a sentence that lists the valid
words, or an empty text. Refuses nothing itself: the caller raises pytest's usage error. No function here runs a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import pytest

from pytest_plugin.adapters import compilers
from pytest_plugin.devices.device_choice import devices_misuse, skip_on_misuse
from pytest_plugin.devices.run_devices import RunDevices
from pytest_plugin.oracle import counts, memory
from pytest_plugin.vocabulary import ADAPTERS, CAPABILITIES, LEVELS, VIEWS
from pytest_plugin.xfail import Xfail

DETERMINISTIC_KEYWORDS = ("runs", "hash_seeds", "threads", "clock")
GOLDEN_KEYWORDS = ("view", "level")
OF_DEVICES = ("devices", "skip_on")


def misuse(item: pytest.Item, devices: RunDevices) -> str:
    """Returns what is wrong with the markers of a test, or an empty text.

    Args:
        item: The test.
        devices: The devices of the run.

    Returns:
        The id of the test and what is wrong.
    """
    for marker in item.iter_markers():
        if marker.name in MARKER_RULES and (problem := MARKER_RULES[marker.name](marker, devices)):
            return f"{item.nodeid}: {problem}"
    # A marker of a class or a module may be meant for other tests in it.
    unheard = next((marker.name for marker in item.own_markers if marker.name in OF_DEVICES), "")
    if unheard and not has_devices(item):
        hint = (
            "a function requests the fixture `device` or `compiled`, a unittest class has the annotation `device: str`"
        )
        return f"{item.nodeid}: {unheard} on a test that asks for no device: {hint}"
    return ""


def misuse_of_items(items: Sequence[pytest.Item], devices: RunDevices) -> str:
    """Returns what is wrong with the markers of the first test that has a wrong one, or an empty text.

    Args:
        items: The tests.
        devices: The devices of the run.

    Returns:
        The id of the test and what is wrong.
    """
    return next((wrong for item in items if (wrong := misuse(item, devices))), "")


def has_devices(item: pytest.Item) -> bool:
    """Tells whether a test runs once for each device.

    Args:
        item: The test.

    Returns:
        True for a test that takes a device by a fixture, or by an attribute of its unittest class.
    """
    return "minductor_device" in getattr(item, "fixturenames", ()) or hasattr(getattr(item, "cls", None), "device")


def _unknown_keyword(marker: pytest.Mark, keywords: Iterable[str]) -> str:
    """Returns what is wrong with a marker that takes only these keywords, or an empty text."""
    unknown = [name for name in marker.kwargs if name not in keywords]
    if not (marker.args or unknown):
        return ""
    wrong = unknown[0] if unknown else "positional arguments"
    return f"{marker.name} has no {wrong}; it has {', '.join(keywords)}"


def devices_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`devices(*ids, min_arch="sm_80")`: runs the test on these devices in place of the default ones.

    The test runs once on each device. A device that is absent is skipped, with the reason in the summary.

    Args:
        marker: ids: "cpu", "cuda", "interpret", "compile:<target>" or the compiler's own; min_arch: the least
            architecture of an NVIDIA GPU.
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    return devices_misuse(marker.args, marker.kwargs, devices.known)


def skip_on_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`skip_on(*ids, reason="why")`: skips the test on these devices. The body does not run there.

    Args:
        marker: ids: ids of devices; reason: a text, which may also be the last positional argument.
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    return skip_on_misuse(marker.args, marker.kwargs, devices.known)


def needs_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`needs(*names)`: skips the test where a capability is absent, with the reason in the summary.

    The body does not run there.

    Args:
        marker: names: of capabilities, such as "triton", or those that an adapter gives to its own devices.
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    brought = [name for names in devices.capabilities.values() for name in names]
    known = dict.fromkeys((*CAPABILITIES, *brought))
    unknown = [name for name in (*marker.args, *marker.kwargs) if name not in known]
    if not unknown and marker.args:
        return ""
    names = f"has no {unknown[0]}" if unknown else "names no capability"
    return f"needs {names}; there are {', '.join(known)}"


def compilers_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`compilers(*names, name=xfail("why"))`: skips the test for compilers that it does not name.

    For a compiler that has an xfail the body runs, and must fail.

    Args:
        marker: names: of compilers; keywords: an `xfail` for each compiler that is known to fail the test.
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    del devices
    named = (*marker.args, *marker.kwargs)
    unknown = [name for name in named if name not in ADAPTERS]
    unknown = [name for name in unknown if name not in compilers()]  # this reads the metadata of every package
    if unknown or not named:
        names = f"has no {unknown[0]}" if unknown else "names no compiler"
        return f"compilers {names}; there are {', '.join(compilers())}"
    wrong = [name for name, value in marker.kwargs.items() if not isinstance(value, Xfail)]
    return f"compilers({wrong[0]}={marker.kwargs[wrong[0]]!r}): declare xfail('the reason')" if wrong else ""


def must_fail_under_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`must_fail_under(*names)`: runs the test again under each of these faults; one of its checks must fail.

    The body runs once more for each fault, in the same process, with a private store.

    Args:
        marker: names: of mutants, from the adapter's table.
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    del devices
    is_right = marker.args and not marker.kwargs and all(isinstance(name, str) for name in marker.args)
    return "" if is_right else "must_fail_under takes names of mutants"


def deterministic_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`deterministic(runs=2, hash_seeds=0, threads=(), clock=False)`: runs the test again; it must generate the same.

    The body runs once more for each change. The generated texts and the bits of the results must be equal.

    Args:
        marker: runs: how often the body runs in this process; hash_seeds: the number of new processes with other hash
            seeds; threads: numbers of threads for torch; clock: whether to run with wrong time measurements.
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    del devices
    return _unknown_keyword(marker, DETERMINISTIC_KEYWORDS)


def counts_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`counts(kernels=1, bytes=at_most("2.1 MiB"), ...)`: checks these counts for each run of `compiled`.

    The compiler reports the counts. The check takes place after the body has passed; it runs no function.

    Args:
        marker: keywords: counts of `vocabulary.COUNTS`, each a whole number, at_most(...) or at_least(...).
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    del devices
    return "counts takes keywords only" if marker.args else counts.counts_misuse(marker.kwargs)


def memory_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`memory(peak=at_most("inputs + output"), leaks=0, frees_inputs=True)`: what each run of `compiled` may hold.

    The check takes place after the body has passed. It runs no function.

    Args:
        marker: peak: the most bytes that a graph holds at a time, as a whole number, at_most(...) or at_least(...);
            leaks: how many storages may outlive a call; frees_inputs: whether the graph frees its donated inputs.
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    del devices
    return "memory takes keywords only" if marker.args else memory.memory_misuse(marker.kwargs)


def golden_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`golden(view="kernel", level="skeleton")`: compares the one run of the test with its golden file.

    The check takes place after the body has passed. It runs no function.

    Args:
        marker: view: "kernel", "wrapper" or "plan", or several of them; level: "facts", "skeleton", "canonical" or
            "exact".
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    del devices
    if problem := _unknown_keyword(marker, GOLDEN_KEYWORDS):
        return problem
    views = marker.kwargs.get("view", ())
    for view in (views,) if isinstance(views, str) else views:
        if view not in VIEWS:
            return f"golden has no view {view!r}; the views are {', '.join(VIEWS)}"
    if marker.kwargs.get("level", LEVELS[0]) not in LEVELS:
        return f"golden has no level {marker.kwargs['level']!r}; the levels are {', '.join(LEVELS)}"
    return ""


def each_variant_marker(marker: pytest.Mark, devices: RunDevices) -> str:
    """`each_variant()`: repeats each call of `compiled` for each variant of its kernels; all must be eager's.

    What the test declares (counts, goldens, memory) is checked of the first run only. A call whose kernels have no
    variants fails the test.

    Args:
        marker: takes nothing.
        devices: The devices of the run.

    Returns:
        What is wrong with the marker, or an empty text.
    """
    del devices
    return "each_variant takes no arguments" if marker.args or marker.kwargs else ""


MARKER_RULES: Mapping[str, Callable[[pytest.Mark, RunDevices], str]] = MappingProxyType(
    {
        "counts": counts_marker,
        "memory": memory_marker,
        "golden": golden_marker,
        "devices": devices_marker,
        "skip_on": skip_on_marker,
        "needs": needs_marker,
        "compilers": compilers_marker,
        "must_fail_under": must_fail_under_marker,
        "deterministic": deterministic_marker,
        "each_variant": each_variant_marker,
    }
)
