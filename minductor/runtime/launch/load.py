"""From a shared object to Python functions, with the least time between a call in Python and the kernel.

Takes the path of a shared object. Gives its kernels as built-in functions of tensors and numbers. They return the
kernel's status, or a tuple of the status, the value and the size if the kernel left these in `md_failure`. Refuses a
file that this process cannot load (LoadFailed).

A kernel is `EXPORT int64_t name(...)` of pointers, integers and doubles, in a unit that starts with ENTRY_PRELUDE and
ends with an `entry` for each kernel. The entry reads Python's arguments itself, so a call costs about 60 ns. With
ctypes and the `data_ptr()` of three tensors it costs ten times as much (benchmarks/launch.md). An entry needs no header
and no extension module: it calls functions of Python's stable ABI, and torch publishes the address of a function that
finds a tensor's data.

>>> print(entry("fused_add_0"), end="")
MD_ENTRY(fused_add_0)
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from minductor.core.errors import LoadFailed
from minductor.runtime.launch.freed_memory import keep_freed_memory

# Where torch publishes functions for generated code; None in a version that has them elsewhere.
GUARDS: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)

# passes/bundle/bundle.py joins kernels up to 256 tensors and numbers, and fusion those of a kernel to 64.
MAX_ARGUMENTS = 384

# One function `md_call` serves every kernel of the library. Each kernel adds the constant `md_entry_*`, which starts
# with CPython's PyMethodDef (flag 0x80: METH_FASTCALL), and a function that passes words as its parameters. These
# compile in 1 ms; a template with all of `md_call` for each signature takes 8 ms. `Run` is a constructor, since only
# braces guarantee that the words are read from left to right.
ENTRY_PRELUDE = f"""\
struct _object;
using PyObject = _object;
extern "C" {{
long long PyLong_AsLongLong(PyObject*);
PyObject* PyLong_FromLongLong(long long);
double PyFloat_AsDouble(PyObject*);
void* PyCapsule_GetPointer(PyObject*, const char*);
PyObject* PyErr_Occurred();
PyObject* Py_BuildValue(const char*, ...);
PyObject* PyErr_Format(PyObject*, const char*, ...);
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
extern PyObject* PyExc_TypeError;
__attribute__((weak, visibility("default"))) void* (*md_tensor_data)(PyObject*) = nullptr;
}}
#define MD_FAILURE
struct md_Failure {{
  long long status, value, size;
}};
extern "C" {{
__attribute__((weak, visibility("hidden"))) __thread md_Failure md_failure = {{0, 0, 0}};
}}
union md_Word {{
  void* pointer;
  long long integer;
  double real;
}};
template <class T> struct md_Parameter {{
  static_assert(T(1) / 2 == 0, "a kernel takes pointers, integers and doubles");
  static constexpr char kind = 'i';
  static T of(const md_Word& word) {{ return static_cast<T>(word.integer); }}
}};
template <class T> struct md_Parameter<T*> {{
  static constexpr char kind = 'p';
  static T* of(const md_Word& word) {{ return static_cast<T*>(word.pointer); }}
}};
template <> struct md_Parameter<double> {{
  static constexpr char kind = 'd';
  static double of(const md_Word& word) {{ return word.real; }}
}};
template <auto kernel> struct md_Kernel;
template <class R, class... A, R (*kernel)(A...)> struct md_Kernel<kernel> {{
  static_assert(sizeof...(A) <= {MAX_ARGUMENTS}, "a kernel takes {MAX_ARGUMENTS} arguments");
  static constexpr char kinds[] = {{md_Parameter<A>::kind..., 0}};
  static constexpr long count = sizeof...(A);
  struct Run {{
    long long status;
    Run(A... arguments) : status(kernel(arguments...)) {{}}
  }};
  static long long call(const md_Word* words) {{ return Run{{md_Parameter<A>::of(*words++)...}}.status; }}
}};
struct md_Entry {{
  const char* name;
  PyObject* (*call)(PyObject*, PyObject* const*, long);
  int flags;
  const char* doc;
  long long (*kernel)(const md_Word*);
  const char* kinds;
  long count;
}};
extern "C" __attribute__((weak, visibility("hidden")))
PyObject* md_call(PyObject* self, PyObject* const* arguments, long count) {{
  const md_Entry* entry = static_cast<const md_Entry*>(PyCapsule_GetPointer(self, nullptr));
  if (count != entry->count)
    return PyErr_Format(PyExc_TypeError, "%s takes %ld arguments", entry->name, entry->count);
  md_Word words[{MAX_ARGUMENTS}];
  for (long i = 0; i < count; i++) {{
    if (entry->kinds[i] == 'p') words[i].pointer = md_tensor_data(arguments[i]);
    else if (entry->kinds[i] == 'i') words[i].integer = PyLong_AsLongLong(arguments[i]);
    else words[i].real = PyFloat_AsDouble(arguments[i]);
  }}
  if (PyErr_Occurred() != nullptr) return nullptr;
  void* python = PyEval_SaveThread();
  long long status = entry->kernel(words);
  PyEval_RestoreThread(python);
  if (status == 0 || md_failure.status == 0) return PyLong_FromLongLong(status);
  md_failure.status = 0;
  return Py_BuildValue("LLL", status, md_failure.value, md_failure.size);
}}
#define MD_ENTRY(name) \\
  extern "C" __attribute__((visibility("default"))) const md_Entry md_entry_##name = {{ \\
      #name, md_call, 0x80, nullptr, md_Kernel<name>::call, md_Kernel<name>::kinds, md_Kernel<name>::count}};
"""


def entry(symbol: str) -> str:
    """The line that makes a kernel known to `bind`. It stands anywhere after the kernel, whose signature it reads."""
    return f"MD_ENTRY({symbol})\n"


def c_api(name: str, *types: type) -> Callable[..., Any]:
    """The function `name` of Python's C API, which takes arguments of these types and returns an object.

    Its prototype is new, since those of ctypes.pythonapi are shared by the whole process.
    """
    return ctypes.PYFUNCTYPE(ctypes.py_object, *types)((name, ctypes.pythonapi))


class Library:
    """A loaded shared object. It stays in the process, like every library that Python loads."""

    def __init__(self, path: Path, handle: ctypes.CDLL) -> None:
        self.path = path
        self._handle = handle

    def address(self, symbol: str) -> int:
        """The address of a variable or function of the library; LoadFailed if there is none of that name."""
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(self._handle, symbol))
        except ValueError:
            raise LoadFailed(str(self.path), f"it has no {symbol}") from None

    def required(self, symbol: str) -> int:
        """As `address`, but closes a library without that name; then none of its functions may be called.

        If a library is still open, the system's loader returns it for its path, even if the file has changed.
        """
        try:
            return self.address(symbol)
        except LoadFailed:
            _ctypes.dlclose(self._handle._handle)
            raise

    def bind(self, symbol: str) -> Callable[..., int]:
        """The kernel behind `entry(symbol)` as a built-in function; LoadFailed if there is none.

        Nothing checks the types, dtypes and sizes of arguments: the generated caller passes the right ones.
        """
        address = self.required(f"md_entry_{symbol}")
        capsule = c_api("PyCapsule_New", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        function = c_api("PyCFunction_NewEx", ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        return function(address, capsule(address, None, None), None)


def load_library(path: Path) -> Library:
    """Loads a shared object and resolves all symbols at once: a missing one raises here and cannot crash a kernel."""
    try:
        if fault := _fault(path.read_bytes()):
            raise LoadFailed(str(path), fault)
        handle = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL | getattr(os, "RTLD_NOW", 0))
    except OSError as error:
        raise LoadFailed(str(path), _explain(str(error))) from None
    keep_freed_memory()
    if hasattr(handle, "md_tensor_data"):
        ctypes.c_void_p.in_dll(handle, "md_tensor_data").value = _tensor_data(path)
    return Library(path, handle)


def _tensor_data(path: Path) -> int:
    """The address of torch's `void* (PyObject* tensor)`, which torch publishes for generated code."""
    address = getattr(GUARDS, "_torchinductor_pyobject_tensor_data_ptr", None)
    if address is None:
        raise LoadFailed(str(path), f"torch {torch.__version__} has no function that finds a tensor's data")
    return address


def _fault(data: bytes) -> str:
    """What in the file would end the process instead of raising an error; "" if nothing."""
    if not data.startswith(b"\x7fELF") or len(data) < 64:
        return "it is no shared object"
    # The table of sections is what linkers write last. A library that is cut short loads, and faults when it is read.
    (table,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    if table + size * count > len(data):
        return "it is cut short"
    # The sanitiser's library ends the process if it comes late.
    if b"libasan.so" in data and not hasattr(ctypes.CDLL(None), "__asan_init"):
        return "it is built with a sanitiser whose library is not in LD_PRELOAD"
    return ""


def _explain(error: str) -> str:
    if "failed to map segment" in error or "Operation not permitted" in error:
        return f"{error} (is the folder on a file system mounted noexec? MINDUCTOR_CACHE_DIR names another)"
    return error


class Threads:
    """The number of threads that kernels may use now: `threads.count()`, which is torch's setting.

    A forked child has one thread: it has the memory of the OpenMP runtime without its threads, and would wait for them
    forever. A kernel takes the number as an argument, since the OpenMP runtime does not know of the fork. C++ reads
    `is_child` directly.
    """

    __slots__ = ("count", "is_child")

    def __init__(self) -> None:
        self.count: Callable[[], int] = torch.get_num_threads
        self.is_child = ctypes.c_int(0)

    def after_fork(self) -> None:
        self.count = _one
        self.is_child.value = 1


def _one() -> int:
    return 1


@functools.cache
def threads() -> Threads:
    """The Threads of this process, together with the hook that corrects it in a forked child."""
    only = Threads()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=only.after_fork)
    return only
