"""Asks the learned choice for a kernel, before prices or a rule decide.

Takes a choice's options, what gives the features, and the Env. Gives the option with a note, no option and the
reason, or None where nothing was learned for such kernels. Refuses nothing: whatever is wrong with a learned choice is
a note, and the caller decides as it would without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from minductor.core.errors import BadHeuristic
from minductor.heuristics.metadata import Metadata, metadata_of
from minductor.heuristics.tree import UNSURE, with_options
from minductor.target import Env

# By choice and target the module in `generated/`. Without a row nothing is learned: prices, or a rule, decide.
GENERATED: Mapping[tuple[str, str], str] = {
    ("rows", "cpu"): "rows_for_cpu",
    ("padding", "sm_90"): "padding_for_sm_90",
}


class Answer(NamedTuple):
    """The option that is taken, "" if the caller decides; and the note for the user."""

    option: str
    note: str


def learned(
    choice: str,
    options: Collection[str],
    features: Callable[[], Mapping[str, float]],
    env: Env,
    generated: Mapping[tuple[str, str], Any] = GENERATED,
) -> Answer | None:
    """What was learned for a kernel.

    Args:
        choice: the name of the choice, such as "rows".
        options: those that the kernel has.
        features: gives the features of the kernel; it is not called where nothing was learned.
        env: options and target.
        generated: by choice and target a module or its name.
    """
    found = generated.get((choice, env.target.name))
    if found is None:
        return None
    module = import_module(f"{__package__}.generated.{found}") if isinstance(found, str) else found
    try:
        metadata = metadata_of(getattr(module, "METADATA", None), getattr(module, "__name__", ""))
    except BadHeuristic as error:
        return _not_used(f"{error.what}: {error.why}")
    if not set(options) <= set(metadata.options):  # a kernel of another kind than those that were measured
        return None
    if why := _refusal(metadata, env):
        return _not_used(why)
    numbers = features()
    if why := metadata.outside(numbers):
        return _not_used(why)
    return _checked(module.choose, with_options(numbers, options, metadata.options), options, metadata)


def _refusal(metadata: Metadata, env: Env) -> str:
    """Why the learned choice is not asked; "" if it is."""
    if env.options.deterministic and metadata.affects == "bits":
        return "it changes bits, and results must be deterministic"
    return metadata.elsewhere(env)


def _checked(
    choose: Callable[[Mapping[str, float]], str],
    features: Mapping[str, float],
    options: Collection[str],
    metadata: Metadata,
) -> Answer:
    """The answer of a generated function, if the kernel has this option."""
    option = choose(features)
    if option == UNSURE:
        return _not_used("it is unsure")
    if option not in options:
        return _not_used(f"it says {option}, which is not legal here")
    others = ", ".join(name for name in options if name != option)
    return Answer(option, f"{option} and not {others}, as learned from {metadata.kernels} kernels on {metadata.device}")


def _not_used(why: str) -> Answer:
    return Answer("", f"the learned choice is not used: {why}")
