"""What a generated choice says of itself: from which data it was learned, and where it may be asked.

Takes the METADATA of a generated module. Gives a `Metadata`, and the reason why a compile may not use it. Refuses
METADATA that lack something or hold another type (BadHeuristic).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from minductor.core.errors import BadHeuristic
from minductor.heuristics.features import FEATURES
from minductor.target import Env


class Metadata(NamedTuple):
    """From which data a choice was learned, how, and how it does.

    `affects`: as in `choices.py`. `options`: those that were measured. `ranges`: by feature the least and the largest
    number that was measured. `held_out`: the figures of `learn.py: Figures` on the kernels that were held out.
    """

    choice: str
    affects: str
    target: str
    device: str
    versions: Mapping[str, str]
    date: str
    kernels: int
    options: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]]
    depth: int
    leaf: int
    threshold: float
    validation: Mapping[str, float]
    held_out: Mapping[str, float]

    def elsewhere(self, env: Env) -> str:
        """Why a compile may not use the choice; "" if it may.

        A target that is no GPU is nominal: all its machines get the same text, so the device that was measured and its
        software do not count.
        """
        if self.target != env.target.name:
            return f"it was learned for {self.target}"
        if not env.target.is_gpu:
            return ""
        if self.device != env.device:
            return f"it was learned on {self.device}, and this is {env.device or 'no device'}"
        here = dict(env.software)
        for name in here.keys() & self.versions.keys():
            if here[name] != self.versions[name]:
                return f"it was learned with {name} {self.versions[name]}, and this is {here[name]}"
        return "" if here else "the versions of the software are not known"

    def outside(self, features: Mapping[str, float]) -> str:
        """The first feature that is outside of what was measured, with its number; "" if none is."""
        for name, (least, most) in self.ranges.items():
            if not least <= features[name] <= most:
                return f"{name} is {features[name]}, and {least} to {most} was measured"
        return ""


# The types that JSON-like METADATA have in the place of those of the fields.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "versions": (dict,),
    "ranges": (dict,),
    "validation": (dict,),
    "held_out": (dict,),
    "options": (tuple,),
    "kernels": (int,),
    "depth": (int,),
    "leaf": (int,),
    "threshold": (int, float),
}


def metadata_of(value: object, where: str = "") -> Metadata:
    """METADATA of the module `where` as a Metadata."""
    why = _damage(value)
    if why:
        raise BadHeuristic("the metadata of a learned choice are damaged", where=where, why=why)
    return Metadata(**cast("dict[str, Any]", value))


def _damage(value: object) -> str:
    """What is wrong with METADATA; "" if nothing is."""
    if not isinstance(value, dict):
        return f"they are {type(value).__name__} and not a dict"
    found = cast("dict[str, Any]", value)
    if odd := sorted(found.keys() ^ set(Metadata._fields)):
        return f"{odd[0]!r} is {'unknown' if odd[0] in found else 'missing'}"
    for name in Metadata._fields:
        types = _TYPES.get(name, (str,))
        if not isinstance(found[name], types):
            return f"{name!r} is {found[name]!r}, and it is a {types[-1].__name__}"
    if list(found["ranges"]) != list(FEATURES.get(found["choice"], ())):
        return "the features are not those that minductor computes"
    pairs = found["ranges"].values()
    if not all(isinstance(pair, tuple) and len(cast("tuple[Any, ...]", pair)) == 2 for pair in pairs):
        return "'ranges' needs two numbers for each feature"
    return ""
