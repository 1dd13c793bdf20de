// The unit's graph as a built-in function of Python: `call(args)` takes a list, empties it, and returns a tuple.
//
// Included after the generated text. Python's functions belong to the stable ABI; they are weak symbols, since a host in C
// has none of them. `runtime/launch/launch_cpp_wrapper.py` finds the tensor's place in its Python object, and binds.
#pragma once

struct _object;
using PyObject = _object;
extern "C" {
#define MD_WEAK __attribute__((weak))
MD_WEAK long long PyLong_AsLongLong(PyObject*);
MD_WEAK PyObject* PyLong_FromLongLong(long long);
MD_WEAK PyObject* PyBool_FromLong(long);
MD_WEAK double PyFloat_AsDouble(PyObject*);
MD_WEAK PyObject* PyFloat_FromDouble(double);
MD_WEAK int PyObject_IsTrue(PyObject*);
MD_WEAK PyObject* PyObject_Type(PyObject*);
MD_WEAK int PyType_IsSubtype(PyObject*, PyObject*);
MD_WEAK void* PyCapsule_GetPointer(PyObject*, const char*);
MD_WEAK PyObject* PyErr_Occurred();
MD_WEAK PyObject* PyErr_Format(PyObject*, const char*, ...);
MD_WEAK void PyErr_SetString(PyObject*, const char*);
MD_WEAK void* PyEval_SaveThread();
MD_WEAK void PyEval_RestoreThread(void*);
MD_WEAK int PyGILState_Ensure();
MD_WEAK void PyGILState_Release(int);
MD_WEAK long PyList_Size(PyObject*);
MD_WEAK PyObject* PyList_GetItem(PyObject*, long);
MD_WEAK int PyList_SetItem(PyObject*, long, PyObject*);
MD_WEAK int PyList_SetSlice(PyObject*, long, long, PyObject*);
MD_WEAK int PyList_Append(PyObject*, PyObject*);
MD_WEAK PyObject* PyTuple_New(long);
MD_WEAK PyObject* PyTuple_GetItem(PyObject*, long);
MD_WEAK int PyTuple_SetItem(PyObject*, long, PyObject*);
MD_WEAK PyObject* PyDict_GetItemString(PyObject*, const char*);
MD_WEAK PyObject* PyObject_CallObject(PyObject*, PyObject*);
MD_WEAK PyObject* Py_BuildValue(const char*, ...);
MD_WEAK void Py_IncRef(PyObject*);
MD_WEAK void Py_DecRef(PyObject*);
MD_WEAK extern PyObject* PyExc_TypeError;
}

// A graph with its objects of this process; the built-in function finds it in its capsule.
struct md_Bound {
  const md_Graph* graph;  // the unit's, or the function of a partition
  const md_Handle* constants;
  PyObject* errors;  // a dict: an exception's name -> its class
  PyObject* places;  // a dict: an ATen node -> the user's line
  PyObject* calls;   // a dict: the name of a call that only Python can make (extern_<handle>, a kernel) -> a function
  PyObject* events;  // a list
  PyObject* eager;   // a function: calls a lambda, given as text, with the other arguments
  PyObject* (*wrap)(const void* tensor);  // torch's function: the Python object of a tensor
  const int* is_child;                    // whether this process was forked: it has no threads of OpenMP then
  PyObject* none;
  PyObject* tensor;  // torch.Tensor
  long offset;       // of the pointer to the tensor in its Python object
};

// The tensor of a Python object. None is the token of an effect, which only Python reads.
static md_Handle md_inside(const md_Bound& bound, PyObject* object) {
  return object == bound.none ? nullptr : reinterpret_cast<md_Handle>(reinterpret_cast<char*>(object) + bound.offset);
}

static bool md_is_tensor(const md_Bound& bound, PyObject* object) {
  PyObject* type = PyObject_Type(object);
  const bool is_tensor = object == bound.none || PyType_IsSubtype(type, bound.tensor);
  Py_DecRef(type);
  return is_tensor;
}

static PyObject* md_None(const md_Bound& bound) {
  Py_IncRef(bound.none);
  return bound.none;
}

static PyObject* md_object(const md_Bound& bound, md_Value value, char kind) {
  switch (kind) {
    case 't':
    case 'o': return value.tensor == nullptr ? md_None(bound) : bound.wrap(value.tensor);
    case 'i': return PyLong_FromLongLong(value.integer);
    case 'd': return PyFloat_FromDouble(value.real);
    case 'b': return PyBool_FromLong(value.integer);
    default: return md_None(bound);
  }
}

// An argument of the call. A tensor that the caller keeps is read from its object. A failure sets Python's exception.
static void md_argument(const md_Bound& bound, PyObject* object, char kind, md_Value& value) {
  if ((kind == 't' || kind == 'o') && !md_is_tensor(bound, object)) {
    value.tensor = nullptr;
    PyErr_Format(PyExc_TypeError, "%s takes a tensor, not %R", bound.graph->name, object);
    return;
  }
  switch (kind) {
    case 't': value.tensor = md_inside(bound, object); break;
    case 'o': value.tensor = md_share(md_inside(bound, object)); break;
    case 'd': value.real = PyFloat_AsDouble(object); break;
    case 'b': value.integer = PyObject_IsTrue(object); break;
    case 'n': break;
    default: value.integer = PyLong_AsLongLong(object);
  }
}

// Calls a function with `first`, if there is one, and these values; the GIL is held.
static PyObject* md_call_object(const md_Bound& bound, PyObject* function, PyObject* first, const char* kinds, const md_Value* given) {
  const long count = strlen(kinds), behind = first != nullptr;
  PyObject* arguments = PyTuple_New(behind + count);
  if (first != nullptr) PyTuple_SetItem(arguments, 0, first);
  for (long n = 0; n < count; n++) PyTuple_SetItem(arguments, behind + n, md_object(bound, given[n], kinds[n]));
  PyObject* results = PyObject_CallObject(function, arguments);
  Py_DecRef(arguments);
  return results;
}

// md_Call::python: makes one call in Python. Its exception stays set, with "" as the error's kind.
static bool md_call_python(md_Call& md, const char* name, const char* kinds, const md_Value* given, md_Handle* made, size_t n_made) {
  const md_Bound& bound = *static_cast<const md_Bound*>(md.host);
  const int state = PyGILState_Ensure();
  PyObject* results = md_call_object(bound, PyDict_GetItemString(bound.calls, name), nullptr, kinds, given);
  if (results != nullptr) {
    for (size_t n = 0; n < n_made; n++) made[n] = md_share(md_inside(bound, PyTuple_GetItem(results, n)));
    Py_DecRef(results);
  }
  PyGILState_Release(state);
  return results != nullptr || md_fail(md, "", "%s", name);
}

// md_Call::eager: the lambda's exception stays set, with "" as the error's kind; without one, the error is unchanged.
static void md_eager_python(md_Call& md, const char* lambda, const char* kinds, const md_Value* given) {
  const md_Bound& bound = *static_cast<const md_Bound*>(md.host);
  const int state = PyGILState_Ensure();
  PyObject* results = md_call_object(bound, bound.eager, Py_BuildValue("s", lambda), kinds, given);
  if (results == nullptr) md_fail(md, "", "%s", lambda);
  else Py_DecRef(results);
  PyGILState_Release(state);
}

// md_Call::tell
static void md_tell_python(md_Call& md, const char* what, const char* name) {
  const int state = PyGILState_Ensure();
  PyObject* event = Py_BuildValue("(ss)", what, name);
  PyList_Append(static_cast<const md_Bound*>(md.host)->events, event);
  Py_DecRef(event);
  PyGILState_Release(state);
}

static PyObject* md_results(const md_Bound& bound, md_Value* made) {
  const long count = strlen(bound.graph->gives);
  PyObject* results = PyTuple_New(count);
  for (long n = 0; n < count; n++) {
    const char kind = bound.graph->gives[n];
    PyTuple_SetItem(results, n, md_object(bound, made[n], kind));
    if (kind == 't' && made[n].tensor != nullptr) md_drop(made[n].tensor);
  }
  return results;
}

// Sets the call's exception, unless Python raised one inside the call.
static PyObject* md_raise(const md_Bound& bound, const md_Call& md) {
  if (md.kind[0] == 0) return nullptr;
  PyObject* kind = PyDict_GetItemString(bound.errors, md.kind);
  PyObject* place = md.node == nullptr ? nullptr : PyDict_GetItemString(bound.places, md.node);
  if (place == nullptr) PyErr_SetString(kind, md.message);
  else PyErr_Format(kind, "%s (at %U)", md.message, place);
  return nullptr;
}

static PyObject* md_enter(PyObject* self, PyObject* arguments) {
  const md_Bound& bound = *static_cast<const md_Bound*>(PyCapsule_GetPointer(self, nullptr));
  const md_Graph& graph = *bound.graph;
  const long count = strlen(graph.takes);
  if (PyList_Size(arguments) != count)
    return PyErr_Format(PyExc_TypeError, "%s takes a list of %ld arguments", graph.name, count);
  md_Value given[count + 1], made[strlen(graph.gives) + 1];
  for (long n = 0; n < count; n++) md_argument(bound, PyList_GetItem(arguments, n), graph.takes[n], given[n]);
  if (PyErr_Occurred() != nullptr) {
    md_release(given, count, graph.takes, "o");
    return nullptr;
  }
  // the list keeps inputs of kind 't' alive, and drops those of kind 'o'
  for (long n = 0; n < count; n++)
    if (graph.takes[n] == 'o') PyList_SetItem(arguments, n, md_None(bound));
  md_Call md;
  static_assert(sizeof(md_Tensor) == sizeof(md_Handle), "constants are handles that nobody drops");
  md.constants = reinterpret_cast<const md_Tensor*>(bound.constants);
  md.threads = *bound.is_child ? 1 : md_threads();
  md.host = const_cast<md_Bound*>(&bound);
  md.python = md_call_python;
  md.tell = md_tell_python;
  md.eager = md_eager_python;
  void* python = PyEval_SaveThread();
  const bool is_done = graph.run(md, given, made);
  PyEval_RestoreThread(python);
  PyList_SetSlice(arguments, 0, count, nullptr);
  return is_done ? md_results(bound, made) : md_raise(bound, md);
}

// As CPython's PyMethodDef; 8: METH_O.
struct md_Method {
  const char* name;
  PyObject* (*call)(PyObject*, PyObject*);
  int flags;
  const char* doc;
};
MD_EXPORT const md_Method md_method = {"call", md_enter, 8, nullptr};
