// The base of every generated call, for torch's tensors and for plain ones: the state of a call, errors, numbers.
//
// A function of a call returns false when it fails, with the error in `md_Call`; MD_TRY returns that to the caller.
// Nothing throws: units are compiled without exceptions. Included by minductor_torch.h and minductor_plain.h, which define
// md_Handle.
#pragma once
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>
#include <new>

#include "minductor.h"

// in C++, math.h takes longer to compile than everything else here
#define MD_NAN __builtin_nan("")
#define MD_INF __builtin_inf()

#define MD_TRY(call) \
  do {               \
    if (!(call)) return false; \
  } while (0)

using md_Sizes = std::initializer_list<int64_t>;

// torch's numbers of the dtypes
enum md_DType : int32_t {
  md_uint8 = 0, md_int8 = 1, md_int16 = 2, md_int32 = 3, md_int64 = 4, md_float16 = 5, md_float32 = 6, md_float64 = 7,
  md_complex32 = 8, md_complex64 = 9, md_complex128 = 10, md_bool = 11, md_bfloat16 = 15, md_float8_e5m2 = 23,
  md_float8_e4m3fn = 24, md_float8_e5m2fnuz = 25, md_float8_e4m3fnuz = 26, md_uint16 = 27, md_uint32 = 28, md_uint64 = 29,
  md_float8_e8m0fnu = 44,
};

// Asks Linux to put new memory on pages of 2 MiB, if it is large: see on_huge_pages in runtime/launch/launch.py.
#ifdef __linux__
extern "C" int madvise(void*, size_t, int) noexcept;
static inline void md_huge_pages(void* data, int64_t bytes) {
  if (__builtin_expect(bytes < (32 << 20), 1)) return;
  const uint64_t page = 4096, begin = ((uint64_t)data + page - 1) / page * page, end = ((uint64_t)data + bytes) / page * page;
  madvise((void*)begin, end - begin, 14);
}
#else
static inline void md_huge_pages(void*, int64_t) {}
#endif

static inline int64_t md_itemsize(int32_t dtype) {
  switch (dtype) {
    case md_int64: case md_uint64: case md_float64: case md_complex64: return 8;
    case md_int32: case md_uint32: case md_float32: case md_complex32: return 4;
    case md_int16: case md_uint16: case md_float16: case md_bfloat16: return 2;
    case md_complex128: return 16;
    default: return 1;
  }
}

// An input or output of a call. A letter gives its kind: 't' a tensor (as an input, the caller keeps it), 'o' an input
// tensor that the call owns and frees, 'i', 'd' and 'b' numbers, 'n' nothing.
union md_Value {
  md_Handle tensor;
  int64_t integer;
  double real;
};

static inline md_Value md_number(int64_t value) { return {.integer = value}; }
static inline md_Value md_number(double value) { return {.real = value}; }

// An error of a kernel: status k stands for the k-th one. The message is a format for the index that is out of range,
// with a blank before it, and for the size of the dimension.
struct md_Error {
  const char* kind;
  const char* message;
};

// What the last failed kernel of this thread reports beside its status; a value of 0 means that it is unknown.
#ifndef MD_FAILURE
#define MD_FAILURE
struct md_Failure {
  long long status, value, size;
};
extern "C" {
__attribute__((weak, visibility("hidden"))) __thread md_Failure md_failure = {0, 0, 0};
}
#endif

class md_Tensor;

// The state of one call, on the stack of its caller.
struct md_Call {
  const md_Tensor* constants = nullptr;
  int64_t threads = 1;
  const char* kind = nullptr;  // the name of the error's class in Python
  char* message = nullptr;
  const char* node = nullptr;  // the ATen node that caused the error, if known
  // Set by hosts with Python: makes calls that only Python can make, by name, and receives events.
  void* host = nullptr;
  bool (*python)(md_Call&, const char* name, const char* kinds, const md_Value* given, md_Handle* made, size_t n_made) = nullptr;
  void (*tell)(md_Call&, const char* what, const char* name) = nullptr;
  // Calls a lambda of Python, for the exception that it raises.
  void (*eager)(md_Call&, const char* lambda, const char* kinds, const md_Value* given) = nullptr;

  md_Call() = default;
  md_Call(const md_Call&) = delete;
  ~md_Call() { free(message); }
};

__attribute__((cold, format(printf, 3, 4))) static bool md_fail(md_Call& md, const char* kind, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  free(md.message);
  if (vasprintf(&md.message, format, arguments) < 0) md.message = nullptr;
  va_end(arguments);
  md.kind = kind;
  return false;
}

__attribute__((cold)) static bool md_failed_kernel(md_Call& md, const md_Error& error, const char* node) {
  char value[32] = "";
  if (md_failure.value != 0) snprintf(value, sizeof value, " %lld", md_failure.value);
  md.node = node;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  return md_fail(md, error.kind, error.message, value, md_failure.size);
#pragma GCC diagnostic pop
}

// `nodes`: the ATen node of each of the errors
template <int n>
static inline bool md_status(md_Call& md, int64_t status, const md_Error (&errors)[n], const char* const (&nodes)[n]) {
  return status == 0 || md_failed_kernel(md, errors[status - 1], nodes[status - 1]);
}

static inline bool md_require(md_Call& md, bool condition, const char* message, const char* node) {
  if (condition) return true;
  md.node = node;
  return md_fail(md, "RuntimeError", "%s", message);
}

static inline void md_event(md_Call& md, const char* what, const char* name) {
  if (md.tell != nullptr) md.tell(md, what, name);
}

static bool md_too_large(md_Call& md) {
  return md_fail(md, "OverflowError", "a number does not fit an int64; options={'wrapper': 'python'} has a form for it");
}

// A number that is a result must fit in 64 bits; a value within rounding distance of the limit is refused too.
static inline double md_magnitude(int64_t value) { return __builtin_fabs((double)value); }
static inline bool md_fits(md_Call& md, double most) {
  return most < 0x1.fffffffffffp62 || md_too_large(md);
}

// Division and remainder round as in Python.
static inline int64_t md_index_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t md_index_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t md_index_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t md_index_mod(int64_t a, int64_t b) { return a - b * md_index_div(a, b); }

// A tensor's size as eager's messages show it: (2, 3).
struct md_Shown {
  char text[400];
  md_Shown(const int64_t* sizes, int64_t ndim) {
    int at = snprintf(text, sizeof text, "(");
    for (int64_t dim = 0; dim < ndim && at < 360; dim++)
      at += snprintf(text + at, sizeof text - at, dim ? ", %lld" : "%lld", (long long)sizes[dim]);
    snprintf(text + at, sizeof text - at, ndim == 1 ? ",)" : ")");
  }
};

// A compiled graph: its function, a letter for each input and output, and the names of its constants.
struct md_Graph {
  const char* name;
  bool (*run)(md_Call& md, md_Value* given, md_Value* made);
  const char* takes;
  const char* gives;
  const char* constants;
  int64_t n_constants;
};
