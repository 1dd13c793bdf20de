// Launches kernels on NVIDIA GPUs: one function for all kernels. A kernel's record says what to pass.
//
// Compiled once per machine (runtime/launch/cuda.py), without headers of Python or CUDA. Python's functions belong to the
// stable ABI. The driver's functions are looked up in cuda.py, which passes their addresses.
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
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
PyObject* PyErr_Occurred();
PyObject* PyErr_Format(PyObject*, const char*, ...);
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
extern PyObject *PyExc_TypeError, *PyExc_RuntimeError, *PyExc_OverflowError;

__attribute__((visibility("default"))) void* (*md_tensor_data)(PyObject*) = nullptr;

// The driver's functions, in the order in which runtime/launch/cuda.py fills them in.
__attribute__((visibility("default"))) struct {
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*error_string)(int, const char**);
  int (*pointer_attribute)(void*, int, unsigned long long);
  int (*retain_context)(void**, int);
  int (*set_context)(void*);
} md_driver = {};
}

enum { INVALID_CONTEXT = 201, DEVICE_ORDINAL = 9, ALIGNMENT = 16, MAX_ARGUMENTS = 384, MAX_STACK = 64, MOST_IN_INT32 = 2147483647 };

union md_Word {
  void* pointer;
  long long integer;
  double real;
};

// A number, such as that of the programs, as steps of a stack machine on the arguments; the codes are those of runtime/launch/cuda.py.
enum md_Code : long long { END, CONSTANT, ARGUMENT, ADD, SUB, MUL, FLOORDIV, MOD, MIN, MAX };
struct md_Step {
  md_Code code;
  long long value;
};

struct md_Launch {
  const char* name;
  PyObject* (*call)(PyObject*, PyObject* const*, long);
  int flags;
  const char* doc;
  void* kernel;
  const md_Step* programs;
  const md_Step* greatest_index;  // what no index exceeds, if the kernel relies on 32 bits to hold it; else null
  // Of the arguments: p for a pointer, i an integer, d a double; 2, 3 and 4 for an integer that this power of two divides.
  // The last one is the stream.
  const char* kinds;
  int count;
  int threads;
  int shared;
  int is_aligned;  // whether the kernel relies on the alignment of its pointers
};

static long long md_floordiv(long long a, long long b) {
  if (b == 0) return 0;
  long long quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

// A result that does not fit in 64 bits is the largest number or the smallest: a bound of indices may exceed them by far.
static long long md_apply(md_Code code, long long a, long long b) {
  long long result = 0;
  bool is_negative = false;
  switch (code) {
    case ADD:
      if (!__builtin_add_overflow(a, b, &result)) return result;
      is_negative = a < 0;
      break;
    case SUB:
      if (!__builtin_sub_overflow(a, b, &result)) return result;
      is_negative = a < 0;
      break;
    case MUL:
      if (!__builtin_mul_overflow(a, b, &result)) return result;
      is_negative = (a < 0) != (b < 0);
      break;
    case FLOORDIV: return md_floordiv(a, b);
    case MOD: return a - b * md_floordiv(a, b);
    case MIN: return a < b ? a : b;
    default: return a > b ? a : b;
  }
  return is_negative ? -__LONG_LONG_MAX__ - 1 : __LONG_LONG_MAX__;
}

static long long md_evaluate(const md_Step* step, const md_Word* words) {
  long long stack[MAX_STACK + 1];
  int top = 0;
  for (; step->code != END; step++) {
    if (step->code == CONSTANT) stack[++top] = step->value;
    else if (step->code == ARGUMENT) stack[++top] = words[step->value].integer;
    else {
      top--;
      stack[top] = md_apply(step->code, stack[top], stack[top + 1]);
    }
  }
  return stack[top];
}

static int md_start(const md_Launch* launch, unsigned programs, void* stream, void** parameters) {
  return md_driver.launch(
      launch->kernel, programs, 1, 1, launch->threads, 1, 1, launch->shared, stream, parameters, nullptr);
}

// A thread that has not called CUDA yet has no context: it uses the device's primary context, as torch does.
static bool md_enter(const md_Launch* launch, const md_Word* words) {
  int device = 0;
  void* context = nullptr;
  for (int i = 0; i < launch->count; i++)
    if (launch->kinds[i] == 'p' && words[i].pointer != nullptr &&
        md_driver.pointer_attribute(&device, DEVICE_ORDINAL, words[i].integer) == 0)
      return md_driver.retain_context(&context, device) == 0 && md_driver.set_context(context) == 0;
  return false;
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

static PyObject* md_fail(const md_Launch* launch, int code) {
  const char* text = nullptr;
  md_driver.error_string(code, &text);
  return PyErr_Format(
      PyExc_RuntimeError, "CUDA error: %s (%d, at the launch of %s)", text ? text : "unknown", code, launch->name);
}

extern "C" __attribute__((visibility("default")))
PyObject* md_launch(PyObject* self, PyObject* const* arguments, long count) {
  const md_Launch* launch = static_cast<const md_Launch*>(PyLong_AsVoidPtr(PyTuple_GetItem(self, 0)));
  if (count != launch->count)
    return PyErr_Format(PyExc_TypeError, "%s takes %d arguments", launch->name, launch->count);
  md_Word words[MAX_ARGUMENTS + 3];
  void* parameters[MAX_ARGUMENTS + 3];
  long long low_bits = 0;
  bool is_taken = true;  // whether the kernel takes these arguments
  for (long i = 0; i < count; i++) {
    parameters[i] = &words[i];
    if (launch->kinds[i] == 'p') {
      words[i].pointer = md_tensor_data(arguments[i]);
      low_bits |= words[i].integer;
    } else if (launch->kinds[i] == 'i') words[i].integer = PyLong_AsLongLong(arguments[i]);
    else if (launch->kinds[i] < 'd') {
      words[i].integer = PyLong_AsLongLong(arguments[i]);
      is_taken &= words[i].integer % (1 << (launch->kinds[i] - '0')) == 0;
    }
    else words[i].real = PyFloat_AsDouble(arguments[i]);
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (launch->greatest_index != nullptr) is_taken &= md_evaluate(launch->greatest_index, words) <= MOST_IN_INT32;
  if (launch->is_aligned) is_taken &= low_bits % ALIGNMENT == 0;
  if (!is_taken)
    return md_call_other(PyTuple_GetItem(self, 2), arguments, count);
  void* stream = words[count - 1].pointer;
  // Triton's kernels take two additional pointers, to scratch memory; kernels that need none ignore them.
  for (long i = count - 1; i < count + 1; i++) {
    words[i].pointer = nullptr;
    parameters[i] = &words[i];
  }
  long long programs = md_evaluate(launch->programs, words);
  if (programs > MOST_IN_INT32)
    return PyErr_Format(PyExc_OverflowError, "%s would have %lld programs", launch->name, programs);
  if (programs > 0) {
    void* python = PyEval_SaveThread();
    int code = md_start(launch, static_cast<unsigned>(programs), stream, parameters);
    if (code == INVALID_CONTEXT && md_enter(launch, words))
      code = md_start(launch, static_cast<unsigned>(programs), stream, parameters);
    PyEval_RestoreThread(python);
    if (code != 0) return md_fail(launch, code);
  }
  return PyLong_FromLongLong(0);
}
