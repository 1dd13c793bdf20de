"""Names in generated code.

Takes: the ops that a kernel computes, in order, or any text.
Gives: identifiers that are the same in every run and say what the kernel computes.
Refuses: a limit too short for the number.

>>> kernel_name(["gelu", "layer_norm"], 0), kernel_name(["add"], 3), kernel_name([], 1)
('fused_gelu_layer_norm_0', 'add_3', 'kernel_1')
>>> slug("aten.native_layer_norm.default"), slug("2d max-pool"), is_identifier("x0"), is_identifier("for")
('aten_native_layer_norm_default', '_2d_max_pool', True, False)
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)

# Python's keywords are in the standard library; these are the words of C++.
_CPP_KEYWORD = re.compile(
    r"""
    alignas | alignof | and | and_eq | asm | auto | bitand | bitor | bool | break | case | catch | char | class |
    compl | concept | const | const_cast | consteval | constexpr | constinit | continue | decltype | default |
    delete | do | double | dynamic_cast | else | enum | explicit | export | extern | false | float | for | friend |
    goto | if | inline | int | long | mutable | namespace | new | noexcept | not | not_eq | nullptr | operator | or
    | or_eq | private | protected | public | register | reinterpret_cast | requires | return | short | signed |
    sizeof | static | static_assert | static_cast | struct | switch | template | this | thread_local | throw | true
    | try | typedef | typeid | typename | union | unsigned | using | virtual | void | volatile | while | xor |
    xor_eq
    """,
    re.VERBOSE,
)


def is_identifier(text: str) -> bool:
    """Whether the text is an identifier, and no keyword, in Python and C++."""
    return _WORD.match(text) is not None and not _is_reserved(text)


def _is_reserved(text: str) -> bool:
    return keyword.iskeyword(text) or _CPP_KEYWORD.fullmatch(text) is not None


def slug(text: str) -> str:
    """An identifier made of the text: other characters become underscores."""
    result = re.sub(r"[^A-Za-z0-9]+", "_", text).rstrip("_") or "_"
    result = result if len(result) == 1 else result.lstrip("_") or "_"
    return f"_{result}" if result[0].isdigit() or _is_reserved(result) else result


def kernel_name(ops: Sequence[str], number: int, limit: int = 64) -> str:
    """The name of a kernel: its ops, then its number, in at most `limit` characters.

    An op that repeats its predecessor is left out. If the name is too long, ops in the middle are left out.
    """
    words: list[str] = []
    for op in map(slug, ops):
        if not words or words[-1] != op:
            words.append(op)
    head = "fused_" if len(words) > 1 else ""
    room = limit - len(f"{head}_{number}")
    if room < 8:
        raise ValueError(f"a kernel name cannot be {limit} characters long")
    while len("_".join(words)) > room and len(words) > 1:
        words.pop((len(words) - 1) // 2)
    return f"{head}{'_'.join(words)[:room].rstrip('_') or 'kernel'}_{number}"


def unique_name(name: str, taken: Iterable[str]) -> str:
    """The name, or the name with the first free number: ``tmp``, ``tmp_1``, ``tmp_2``.

    >>> unique_name("tmp", {"tmp", "tmp_1"})
    'tmp_2'
    """
    used = set(taken)
    if name not in used:
        return name
    number = 1
    while f"{name}_{number}" in used:
        number += 1
    return f"{name}_{number}"
