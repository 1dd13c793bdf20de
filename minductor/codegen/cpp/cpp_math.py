"""The sections of cpp_math.h, and of the headers that continue it, that a kernel needs.

Takes the names of functions (`md_exp_f32`). Gives the text of the base section and of the sections that define these
functions and all that they call, in the headers' order. Refuses names that no header defines.

>>> print(prelude(["md_rsqrt_f32"]).splitlines()[-1])
MD_INLINE float md_rsqrt_f32(float x) { return 1.0f / __builtin_sqrtf(x); }
>>> "md_log_f32" in prelude(["md_rsqrt_f32"])
False

A function with a name of its own, `called("md_exp_f32")`, is the same function out of line. A loop calls it for a whole
vector. A kernel of many functions that wait for each other takes as long with calls as with inlined code, and g++ takes
an eighth of the time. `over_strip("md_exp_f32")` is the function for all elements of arrays.
"""

import functools
import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PARTS = ("math", "double", "convert", "special", "loops", "transpose")
HEADERS = tuple(Path(__file__).with_name(f"cpp_{part}.h") for part in PARTS)
MARK = "//@ "
BASE = "base"
LINES = "lines"  # the name of a section whose lines are sections of their own
LINE_NAME = re.compile(r"(md_\w+)\(")
CALLED, OVER_STRIP = "md_called_", "md_strip_"  # how the names of functions out of line begin


class Section(NamedTuple):
    """The text between two marks of a header: `names` are defined in it, `needs` are used and defined elsewhere."""

    names: tuple[str, ...]
    needs: tuple[str, ...]
    text: str


def spelled(pattern: str) -> tuple[str, ...]:
    """The names that a pattern with braces stands for.

    >>> spelled("md_{add,sub}_{i32,i64}")
    ('md_add_i32', 'md_add_i64', 'md_sub_i32', 'md_sub_i64')
    """
    parts = [part.strip("{}").split(",") for part in re.split(r"(\{[^}]*\})", pattern)]
    return tuple("".join(choice) for choice in itertools.product(*parts))


def code(text: str) -> list[str]:
    """The lines of a text that are neither empty nor a comment."""
    return [line for line in text.splitlines() if line and not line.startswith("//")]


@functools.cache
def sections() -> tuple[Section, ...]:
    """The sections of all headers in order; a section uses only sections above it."""
    found: list[Section] = []
    blocks = [("\n" + header.read_text(encoding="utf-8")).split("\n" + MARK)[1:] for header in HEADERS]
    for block in itertools.chain.from_iterable(blocks):
        mark, _, text = block.partition("\n")
        if mark == LINES:
            found.extend(Section(tuple(LINE_NAME.findall(line)[:1]), (), line + "\n") for line in code(text))
            continue
        names, _, needs = mark.partition(":")
        defined = tuple(name for pattern in names.split() for name in spelled(pattern))
        found.append(Section(defined, tuple(needs.split()), text.strip("\n") + "\n"))
    return tuple(found)


@functools.cache
def owners() -> Mapping[str, Section]:
    """The section that defines each name."""
    return {name: section for section in sections() for name in section.names}


def prelude(names: Iterable[str]) -> str:
    """The base section and the sections that `names` need, each once, then the functions out of line."""
    names = list(names)
    apart = sorted({name for name in names if inlined(name) != name})
    wanted = {BASE}
    pending = [inlined(name) for name in names] + (["MD_CALLED"] if any(n.startswith(CALLED) for n in apart) else [])
    while pending:
        name = pending.pop()
        if name not in owners():
            raise ValueError(f"no function {name!r} in {', '.join(header.name for header in HEADERS)}")
        if name not in wanted:
            wanted.add(name)
            pending.extend(owners()[name].needs)
    text = "".join(section.text for section in sections() if not wanted.isdisjoint(section.names))
    return text + "".join(map(_definition, apart))


def called(name: str) -> str:
    """The name of a function out of line; its own name if it has no such form.

    >>> called("md_exp_f32"), called("md_index")
    ('md_called_exp_f32', 'md_index')
    """
    return CALLED + name.removeprefix("md_") if _head(name).startswith("float ") else name


def over_strip(name: str) -> str:
    """The name of a function, out of line or not, for all elements of arrays; "" if it has no such form.

    >>> over_strip("md_called_exp_f32"), over_strip("md_exp_f64"), over_strip("md_index")
    ('md_strip_exp_f32', 'md_strip_exp_f64', '')
    """
    name = inlined(name)
    return OVER_STRIP + name.removeprefix("md_") if _head(name) else ""


def inlined(name: str) -> str:
    """The name of the function that `name` is, out of line or not."""
    start = next((start for start in (CALLED, OVER_STRIP) if name.startswith(start)), "")
    return "md_" + name.removeprefix(start) if start else name


@functools.lru_cache(1024)
def _head(name: str) -> str:
    """The parameters of a function of floats, as its definition has them; "" if some are not of the result's type."""
    text = owners()[name].text if name in owners() else ""
    found = re.search(rf"^MD_INLINE (float|double) {name}\(((?:\1 \w+(?:, )?)+)\) {{", text, re.MULTILINE)
    return found[2] if found else ""


def _definition(name: str) -> str:
    """The definition of a function out of line."""
    function = inlined(name)
    head = _head(function)
    kind, names = head.split()[0], re.findall(r"\w+(?=,|$)", head)
    if name.startswith(CALLED):
        return f"MD_CALLED {kind} {name}({head}) {{ return {function}({', '.join(names)}); }}\n"
    given = ", ".join(f"const {kind}* __restrict {each}" for each in names)
    elements = ", ".join(f"{each}[i]" for each in names)
    return (
        f"static __attribute__((noinline)) void {name}({given}, {kind}* __restrict result, int64_t count) {{\n"
        f"#pragma omp simd\n  for (int64_t i = 0; i < count; ++i) result[i] = {function}({elements});\n}}\n"
    )
