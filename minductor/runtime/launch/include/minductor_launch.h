// Launches of kernels on NVIDIA GPUs, for callers in Python (cuda_launch.h) and in C++ (minductor_cuda.h).
//
// A kernel's record says what the driver is passed. Records and the table of the driver's functions are filled in by
// runtime/launch/cuda.py. Needs no other header.

extern "C" {
// The driver's functions, in the order in which runtime/launch/cuda.py fills them in.
__attribute__((visibility("default"))) struct {
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*error_string)(int, const char**);
  int (*pointer_attribute)(void*, int, unsigned long long);
  int (*retain_context)(void**, int);
  int (*set_context)(void*);
  int (*is_capturing)(void*, int*);
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

// Starts with Python's PyMethodDef.
struct md_Launch {
  const char* name;
  void* call;
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

static int md_start(const md_Launch& launch, unsigned programs, void* stream, void** parameters) {
  return md_driver.launch(
      launch.kernel, programs, 1, 1, launch.threads, 1, 1, launch.shared, stream, parameters, nullptr);
}

// A thread that has not called CUDA yet has no context: it uses the device's primary context, as torch does.
static bool md_use_context(const md_Launch& launch, const md_Word* words) {
  int device = 0;
  void* context = nullptr;
  for (int i = 0; i < launch.count - 1; i++)
    if (launch.kinds[i] == 'p' && words[i].pointer != nullptr &&
        md_driver.pointer_attribute(&device, DEVICE_ORDINAL, words[i].integer) == 0)
      return md_driver.retain_context(&context, device) == 0 && md_driver.set_context(context) == 0;
  return false;
}

// Whether the machine code takes these arguments: the first `count` ones of a launch.
static bool md_takes(const md_Launch& launch, const md_Word* words, long count) {
  long long low_bits = 0;
  for (long i = 0; i < count; i++) {
    const char kind = launch.kinds[i];
    if (kind == 'p') low_bits |= words[i].integer;
    else if (kind < 'd' && words[i].integer % (1 << (kind - '0')) != 0) return false;
  }
  if (launch.greatest_index != nullptr && md_evaluate(launch.greatest_index, words) > MOST_IN_INT32) return false;
  return !launch.is_aligned || low_bits % ALIGNMENT == 0;
}

// Launches, and gives the driver's status. `words`: the arguments but for the stream, and room for two more.
static int md_submit(const md_Launch& launch, unsigned programs, void* stream, md_Word* words) {
  void* parameters[MAX_ARGUMENTS + 4];
  const long count = launch.count - 1;
  // Triton's kernels take two additional pointers, to scratch memory; kernels that need none ignore them.
  words[count].pointer = words[count + 1].pointer = nullptr;
  for (long i = 0; i < count + 2; i++) parameters[i] = &words[i];
  const int code = md_start(launch, programs, stream, parameters);
  if (code == INVALID_CONTEXT && md_use_context(launch, words)) return md_start(launch, programs, stream, parameters);
  return code;
}

// What is added to an error of a kernel that ran, since the launch that finds it may be another's: CUDA_ERROR_ILLEGAL_ADDRESS,
// CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_ASSERT, and from CUDA_ERROR_HARDWARE_STACK_ERROR to CUDA_ERROR_LAUNCH_FAILED. The
// text stands in cuda.py as well.
static const char* md_driver_hint(int code) {
  const bool is_late = code == 700 || code == 702 || code == 710 || (code >= 714 && code <= 719);
  return is_late ? "; it or a kernel before it failed: with CUDA_LAUNCH_BLOCKING=1 each launch waits, and the error names it" : "";
}

static const char* md_driver_error(int code) {
  const char* text = nullptr;
  md_driver.error_string(code, &text);
  return text ? text : "unknown";
}
