"""A shared object to Python callables, by the shortest way from a call in Python to the kernel.

Takes the path of a shared object. Gives its kernels as callables that take tensors, ints and floats and return the
kernel's status. Refuses a file that this process cannot load (LoadFailed).

The short way is an *entry*: C++ text, compiled with the kernels, that reads tensors and numbers out of the arguments
Python passes. A call costs about 60 ns; ctypes with the `data_ptr()` of three tensors costs ten times that
(benchmarks/launch.md). It takes no header and no extension module: the functions of Python that it calls belong to
the stable ABI, and torch gives the address of a function that finds a tensor's data.

>>> print(entry("fused_add_0"), end="")
MD_ENTRY(fused_add_0)
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from minductor.core.errors import LoadFailed

METH_FASTCALL = 0x0080

# Comes once in front of the entries of a unit. The kernel's own parameter types say how each argument is read: a
# pointer takes a tensor's data, a floating type a float, any other an int. Its result is an integer or void.
# `Run` is a constructor because only braces promise that the arguments are read from left to right.
# Without the address from torch (another version), the pointers come from the method that Python would call.
ENTRY_PRELUDE = """\
struct _object;
using PyObject = _object;
extern "C" {
long long PyLong_AsLongLong(PyObject*);
void* PyLong_AsVoidPtr(PyObject*);
double PyFloat_AsDouble(PyObject*);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyObject_CallMethod(PyObject*, const char*, const char*, ...);
PyObject* PyErr_Occurred();
PyObject* PyErr_Format(PyObject*, const char*, ...);
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
void Py_DecRef(PyObject*);
extern PyObject* PyExc_TypeError;
__attribute__((weak, visibility("default"))) void* (*md_tensor_data)(PyObject*) = nullptr;
}
namespace md_entry {
inline void* data(PyObject* tensor) {
  if (__builtin_expect(md_tensor_data != nullptr, 1)) return md_tensor_data(tensor);
  PyObject* address = PyObject_CallMethod(tensor, "data_ptr", nullptr);
  if (address == nullptr) return nullptr;
  void* result = PyLong_AsVoidPtr(address);
  Py_DecRef(address);
  return result;
}
template <class T> struct Argument {
  static T of(PyObject* value) { return static_cast<T>(PyLong_AsLongLong(value)); }
};
template <class T> struct Argument<T*> {
  static T* of(PyObject* value) { return static_cast<T*>(data(value)); }
};
template <> struct Argument<double> {
  static double of(PyObject* value) { return PyFloat_AsDouble(value); }
};
template <> struct Argument<float> {
  static float of(PyObject* value) { return static_cast<float>(PyFloat_AsDouble(value)); }
};
template <class... A> long long status(void (*kernel)(A...), A... arguments) { return kernel(arguments...), 0; }
template <class R, class... A> long long status(R (*kernel)(A...), A... arguments) { return kernel(arguments...); }
template <auto kernel> struct Entry;
template <class R, class... A, R (*kernel)(A...)> struct Entry<kernel> {
  struct Run {
    PyObject* result;
    Run(A... arguments) : result(nullptr) {
      if (PyErr_Occurred() != nullptr) return;
      void* python = PyEval_SaveThread();
      long long code = status(kernel, arguments...);
      PyEval_RestoreThread(python);
      result = PyLong_FromLongLong(code);
    }
  };
  static PyObject* call(PyObject* const* arguments, long count, const char* name) {
    if (count != static_cast<long>(sizeof...(A)))
      return PyErr_Format(PyExc_TypeError, "%s takes %d arguments", name, static_cast<int>(sizeof...(A)));
    int i = 0;
    return Run{Argument<A>::of(arguments[i++])...}.result;
  }
};
}  // namespace md_entry
#define MD_ENTRY(kernel) \\
  extern "C" __attribute__((visibility("default"))) \\
  PyObject* md_entry_##kernel(PyObject*, PyObject* const* arguments, long count) { \\
    return md_entry::Entry<kernel>::call(arguments, count, #kernel); \\
  }
"""


def entry(symbol: str) -> str:
    """The line, after ENTRY_PRELUDE and the kernel, that lets `bind` find the kernel. The kernel may be static."""
    return f"MD_ENTRY({symbol})\n"


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class Library:
    """A loaded shared object. It stays in the process for good, like every library that Python loads."""

    def __init__(self, path: Path, handle: ctypes.CDLL) -> None:
        self.path = path
        self._handle = handle
        self._definitions: list[_MethodDef] = []

    def function(
        self, symbol: str, argtypes: Sequence[type], restype: type | None = ctypes.c_int64
    ) -> Callable[..., int]:
        """A function called by ctypes, for what takes raw addresses; KeyError if there is none of that name."""
        try:
            found = self._handle[symbol]
        except AttributeError:
            raise KeyError(symbol) from None
        found.argtypes = list(argtypes)
        found.restype = restype
        return found

    def bind(self, symbol: str) -> Callable[..., int]:
        """The kernel behind `entry(symbol)`, as a built-in function; KeyError if there is none.

        Its arguments are tensors, ints and floats as the kernel declares them. Nothing checks that a tensor is one,
        nor its dtype or size: that is settled when the caller is generated.
        """
        try:
            address = ctypes.cast(self._handle[f"md_entry_{symbol}"], ctypes.c_void_p).value
        except AttributeError:
            raise KeyError(symbol) from None
        definition = _MethodDef(symbol.encode(), address, METH_FASTCALL, None)
        # The function only borrows its definition. It owns its `self`, though: through that the definition lives on.
        self._definitions.append(definition)
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
        return new(ctypes.addressof(definition), self, None)


def load_library(path: Path) -> Library:
    """Loads with every symbol resolved now, so that a missing one is an error here and not a crash in a kernel."""
    if _needs_sanitizer(path):
        raise LoadFailed(str(path), "it is built with a sanitiser whose library is not in LD_PRELOAD")
    try:
        handle = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL | getattr(os, "RTLD_NOW", 0))
    except OSError as error:
        raise LoadFailed(str(path), _explain(str(error))) from None
    if (address := _tensor_data()) is not None and hasattr(handle, "md_tensor_data"):
        ctypes.c_void_p.in_dll(handle, "md_tensor_data").value = address
    return Library(path, handle)


def _tensor_data() -> int | None:
    """The address of torch's `void* (PyObject* tensor)`, which torch publishes for generated code."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "_torchinductor_pyobject_tensor_data_ptr", None)


def _needs_sanitizer(path: Path) -> bool:
    # The sanitiser's library ends the process if it comes late; no exception would tell why.
    try:
        return b"libasan.so" in path.read_bytes() and not hasattr(ctypes.CDLL(None), "__asan_init")
    except OSError:
        return False


def _explain(error: str) -> str:
    if "failed to map segment" in error or "Operation not permitted" in error:
        return f"{error} (is the folder on a file system mounted noexec? MINDUCTOR_CACHE_DIR names another)"
    return error


class Threads:
    """How many threads kernels may use now: `threads.count()`, torch's own setting.

    One in a forked child: it has the memory of the OpenMP runtime and none of its threads, and would wait for them
    for ever. A kernel gets the number as an argument, since the runtime knows nothing of that.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count: Callable[[], int] = torch.get_num_threads

    def after_fork(self) -> None:
        self.count = _one


def _one() -> int:
    return 1


@functools.cache
def threads() -> Threads:
    """The one of this process, made together with the hook that keeps it right in a forked child."""
    only = Threads()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=only.after_fork)
    return only
