"""The floor under the calls of a graph: what any wrapper has to pay for.

Takes a graph's wrapper in C++. Gives a text that runs, in one call, so many rounds of what no wrapper can leave out:
the kernels with pointers that are at hand, the operators on tensors that are there, and for each result new memory, an
object of Python's, and the end of both. All else is done once, before the rounds. A call less this floor is what its
wrapper adds: its arguments, the memory and windows in between, the way from one kernel to the next.

>>> print(floor_text('''static bool call(md_Call& md, md_Value* md_given, md_Value* md_made) {
...   md_Tensor buf0, buf1;
...   MD_TRY(md_empty(md, buf0, md_float32, {8}, {1}));
...   // 1: sin
...   sin_0(buf0.data<float>(), md.threads);
...   buf1 = buf0.take();
...   md_made[0].tensor = buf1.give();
...   return true;
... }
... ''', 9).partition("static bool call")[2].partition("#include")[0])  # doctest: +NORMALIZE_WHITESPACE
(md_Call& md, md_Value* md_given, md_Value* md_made) {
  md_Tensor buf0, buf1;
  MD_TRY(md_empty(md, buf0, md_float32, {8}, {1}));
  sin_0(buf0.data<float>(), md.threads);
  buf1 = md_Tensor(md_share(buf0.handle));
  const auto md_pointer0 = buf0.data<float>();
  const int md_state = PyGILState_Ensure();
  for (int md_round = 0; md_round < 9; md_round++) {
    sin_0(md_pointer0, md.threads);
    MD_TRY(md_result(md, buf1));
  }
  PyGILState_Release(md_state);
  md_made[0].tensor = buf1.give();
  return true;
}
<BLANKLINE>
"""

from __future__ import annotations

import re

_HEADER = """\
extern "C" __attribute__((weak)) int PyGILState_Ensure();
extern "C" __attribute__((weak)) void PyGILState_Release(int);
static bool md_result(md_Call& md, const md_Tensor& like);
"""
_RESULT = """
#include "minductor_python.h"
static bool md_result(md_Call& md, const md_Tensor& like) {
  md_Tensor made;
  const int64_t *sizes = like.sizes(), *strides = like.strides();
  MD_TRY(md_torch(md, aoti_torch_empty_strided(like.ndim(), sizes, strides, like.dtype(), 0, 0, made.made())));
  PyObject* object = static_cast<const md_Bound*>(md.host)->wrap(made.handle);
  made.reset();
  Py_DecRef(object);
  return true;
}
"""


def floor_text(wrapper: str, rounds: int) -> str:
    """The wrapper's unit, as the floor under it."""
    head, signature, rest = wrapper.partition("static bool call(")
    first, *body = rest.splitlines()
    end = next(number for number, line in enumerate(body) if line.startswith("  md_made["))
    once: list[str] = []
    again: list[str] = []
    pointers: dict[str, str] = {}
    is_call = False
    for line in body[:end]:
        if is_call:
            again.append(re.sub(r"\w+\.data<\w+>\(\)", lambda found: _named(pointers, found[0]), line))
        if is_call or not (is_call := line.startswith("  // ")):
            once.append(re.sub(r"(\w+)\.take\(\)", r"md_Tensor(md_share(\1.handle))", _without_ends(line)))
            is_call = False
    results = re.findall(r"md_made\[\d+\]\.tensor = (?:md_share\()?(\w+)\.", "\n".join(body[end:]))
    text = [
        head + _HEADER + signature + first,
        *filter(str.strip, once),
        *(f"  const auto {name} = {pointer};" for pointer, name in pointers.items()),
        "  const int md_state = PyGILState_Ensure();",
        f"  for (int md_round = 0; md_round < {rounds}; md_round++) {{",
        *(f"  {line}" for line in again),
        *(f"    MD_TRY(md_result(md, {name}));" for name in results),
        "  }",
        "  PyGILState_Release(md_state);",
        *body[end:],
    ]
    return "\n".join(text) + _RESULT


def _named(pointers: dict[str, str], pointer: str) -> str:
    return pointers.setdefault(pointer, f"md_pointer{len(pointers)}")


def _without_ends(line: str) -> str:
    """Nothing dies before the rounds are over."""
    return re.sub(r"\w+\.reset\(\);", "", line)
