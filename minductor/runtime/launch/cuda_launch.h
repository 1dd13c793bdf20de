// Launches kernels on NVIDIA GPUs from Python: one function for all kernels. A kernel's record says what to pass. Another
// function compares where the inputs of a CUDA graph lie.
//
// Compiled once per machine (runtime/launch/cuda.py) behind minductor_launch.h, without headers of Python or CUDA. Python's
// functions belong to the stable ABI.
// A kernel is a built-in function made from a record, which starts with Python's PyMethodDef. Its self is the tuple
// (address of the record, objects that keep the record alive, function to call for arguments that the machine code does not take).

struct _object;
using PyObject = _object;

extern "C" {
long long PyLong_AsLongLong(PyObject*);
void* PyLong_AsVoidPtr(PyObject*);
PyObject* PyLong_FromLongLong(long long);
double PyFloat_AsDouble(PyObject*);
PyObject* PyTuple_New(long);
PyObject* PyTuple_GetItem(PyObject*, long);
int PyTuple_SetItem(PyObject*, long, PyObject*);
PyObject* PyObject_CallObject(PyObject*, PyObject*);
PyObject* PyObject_GetAttrString(PyObject*, const char*);
PyObject* PyBool_FromLong(long);
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
PyObject* PyErr_Occurred();
PyObject* PyErr_Format(PyObject*, const char*, ...);
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
extern PyObject *PyExc_TypeError, *PyExc_RuntimeError, *PyExc_OverflowError;

__attribute__((visibility("default"))) void* (*md_tensor_data)(PyObject*) = nullptr;
}

// Where a tensor's memory begins; null with Python's error if torch refuses to say. Torch throws then, as for a result
// that a CUDA graph has overwritten; the tensor's own `data_ptr` raises the same as an error of Python's.
static void* md_data(PyObject* tensor) {
  try {
    return md_tensor_data(tensor);
  } catch (...) {
  }
  PyObject* ask = PyObject_GetAttrString(tensor, "data_ptr");
  PyObject* found = ask == nullptr ? nullptr : PyObject_CallObject(ask, nullptr);
  void* data = found == nullptr ? nullptr : PyLong_AsVoidPtr(found);
  if (ask != nullptr) Py_DecRef(ask);
  if (found != nullptr) Py_DecRef(found);
  return data;
}

static PyObject* md_call_other(PyObject* other, PyObject* const* arguments, long count) {
  PyObject* row = PyTuple_New(count);
  if (row == nullptr) return nullptr;
  for (long i = 0; i < count; i++) {
    Py_IncRef(arguments[i]);
    PyTuple_SetItem(row, i, arguments[i]);
  }
  PyObject* result = PyObject_CallObject(other, row);
  Py_DecRef(row);
  return result;
}

static PyObject* md_fail(const md_Launch& launch, int code) {
  return PyErr_Format(
      PyExc_RuntimeError, "CUDA error: %s (%d, at the launch of %s)%s", md_driver_error(code), code, launch.name,
      md_driver_hint(code));
}

extern "C" __attribute__((visibility("default")))
PyObject* md_launch(PyObject* self, PyObject* const* arguments, long count) {
  const md_Launch& launch = *static_cast<const md_Launch*>(PyLong_AsVoidPtr(PyTuple_GetItem(self, 0)));
  if (count != launch.count)
    return PyErr_Format(PyExc_TypeError, "%s takes %d arguments", launch.name, launch.count);
  md_Word words[MAX_ARGUMENTS + 4];
  for (long i = 0; i < count; i++) {
    if (launch.kinds[i] == 'p') words[i].pointer = md_data(arguments[i]);
    else if (launch.kinds[i] == 'd') words[i].real = PyFloat_AsDouble(arguments[i]);
    else words[i].integer = PyLong_AsLongLong(arguments[i]);
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (!md_takes(launch, words, count - 1)) return md_call_other(PyTuple_GetItem(self, 2), arguments, count);
  void* stream = words[count - 1].pointer;
  long long programs = md_evaluate(launch.programs, words);
  if (programs > MOST_IN_INT32)
    return PyErr_Format(PyExc_OverflowError, "%s would have %lld programs", launch.name, programs);
  if (programs > 0) {
    void* python = PyEval_SaveThread();
    int code = md_submit(launch, static_cast<unsigned>(programs), stream, words);
    PyEval_RestoreThread(python);
    if (code != 0) return md_fail(launch, code);
  }
  return PyLong_FromLongLong(0);
}

// Where some tensors among the arguments of a call lay, behind Python's PyMethodDef.
struct md_Places {
  const char* name;
  void* call;
  int flags;
  const char* doc;
  const long long* numbers;  // of the tensors among the arguments
  void* const* addresses;
  long count;
};

// Whether they lie there. Its self is the tuple (address of the md_Places, objects that keep it alive).
extern "C" __attribute__((visibility("default")))
PyObject* md_lie_there(PyObject* self, PyObject* const* arguments, long) {
  const md_Places& places = *static_cast<const md_Places*>(PyLong_AsVoidPtr(PyTuple_GetItem(self, 0)));
  for (long i = 0; i < places.count; i++)
    if (md_data(arguments[places.numbers[i]]) != places.addresses[i])
      return PyErr_Occurred() != nullptr ? nullptr : PyBool_FromLong(0);
  return PyBool_FromLong(1);
}
