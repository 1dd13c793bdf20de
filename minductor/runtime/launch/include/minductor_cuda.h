// What units for NVIDIA GPUs need besides minductor_torch.h: the device and its stream, memory there, launches of kernels.
//
// torch's functions for CUDA are in libtorch_cuda.so, which a torch without CUDA lacks. So a unit has pointers to them, in
// the table MD_LINKS. The loader (runtime/launch/cuda_cpp_wrapper.py) fills in this table, the driver's, and the kernels.
#pragma once
#include "minductor_launch.h"

// A function of torch that is looked up by its name: it is called through a pointer of the same name.
struct md_Link {
  const char* name;
  void** function;
};
#define MD_LINK(name, ...) static int32_t (*name)(__VA_ARGS__);
#define MD_LINKED(name) {#name, reinterpret_cast<void**>(&name)}

MD_LINK(aoti_torch_device_type_cuda)
MD_LINK(aoti_torch_get_current_cuda_stream, int32_t, void**)
MD_LINK(aoti_torch_create_cuda_guard, int32_t, struct CUDAGuardOpaque**)
MD_LINK(aoti_torch_delete_cuda_guard, struct CUDAGuardOpaque*)

// The links of a unit: those of this header, and its own.
#define MD_LINKS_OF_ALL                                                                           \
  MD_LINKED(aoti_torch_device_type_cuda), MD_LINKED(aoti_torch_get_current_cuda_stream),          \
      MD_LINKED(aoti_torch_create_cuda_guard), MD_LINKED(aoti_torch_delete_cuda_guard)
#define MD_LINKS(...) MD_EXPORT const md_Link md_links[] = {__VA_ARGS__, {nullptr, nullptr}};

// The number of the GPU that a unit works on whose text names none, such as that of a package.
MD_EXPORT int32_t md_gpu = -1;

// A kernel of the unit. The loader fills in all but its name.
struct md_Kernel {
  const char* name;
  const char* kinds;        // a letter for each argument: t, i, d
  const md_Launch* launch;  // null if Python makes all launches
  int64_t scratch;          // bytes of global memory that each program uses
  int64_t has_counter;      // whether a counter of the stream stands behind the arguments
  const md_Kernel* other;   // what is tried where the machine code does not take the arguments; null if there is none

  // Launches the kernel with tensors and numbers. `node`: the ATen nodes of the launch, as one key of the user's lines.
  bool operator()(md_Call& md, const class md_Scope& scope, md_Values given, const char* node) const;
};
#define MD_KERNELS(...) MD_EXPORT md_Kernel md_kernels[] = {__VA_ARGS__, {nullptr}};

// The GPU that a function works on is the current device until the function ends; `stream` is torch's current one there.
class md_Scope {
 public:
  void* stream = nullptr;
  int32_t index = -1;

  md_Scope() = default;
  md_Scope(const md_Scope&) = delete;
  ~md_Scope() {
    if (guard_ != nullptr) aoti_torch_delete_cuda_guard(guard_);
  }
  // `number`: that of the device; -1 means the one that is current already.
  bool enter(md_Call& md, int32_t number) {
    index = number;
    if (index >= 0) MD_TRY(md_torch(md, aoti_torch_create_cuda_guard(index, &guard_)));
    return md_torch(md, aoti_torch_get_current_cuda_stream(index, &stream));
  }

 private:
  struct CUDAGuardOpaque* guard_ = nullptr;
};

// torch's number for the kind of device; that of the CPU where a test has functions of its own.
static inline int32_t md_cuda() { return aoti_torch_device_type_cuda(); }

// Repeats a failed allocation in eager, for torch's error with the sizes of its pools.
__attribute__((cold, noinline)) static bool md_no_cuda_memory(md_Call& md, int64_t bytes) {
  return md_eager(md, "lambda n: torch.empty(n, dtype=torch.uint8, device='cuda')", "i", bytes);
}

static inline bool md_empty_cuda(md_Call& md, md_Tensor& made, md_DType dtype, md_Sizes size, md_Sizes stride, int32_t index) {
  const int32_t status = aoti_torch_empty_strided(size.size(), size.begin(), stride.begin(), dtype, md_cuda(), index, made.made());
  return __builtin_expect(status == 0, 1) || md_no_cuda_memory(md, md_bytes(dtype, size, stride));
}

// A tensor of int32 that hold 0, for the kernels of one stream; see runtime/launch/counters.py.
constexpr int64_t md_counters = 128;  // as in ir/artefact/launch_metadata.py

struct md_Counter {
  void* stream;
  md_Tensor tensor;
  md_Counter* next;
};

static bool md_new_counter(md_Call& md, md_Tensor& made, int32_t index) {
  MD_TRY(md_empty_cuda(md, made, md_int32, {md_counters}, {1}, index));
  return md_torch(md, aoti_torch_zero_(made.handle));
}

// The counter for the next launch on a stream. A CUDA graph sets its own to 0 whenever it runs, and keeps the memory; `own`
// holds it during the launch. All others stay in this process: two threads that come at once may make two.
static bool md_counter(md_Call& md, const md_Scope& scope, md_Tensor& own, void*& found) {
  static md_Counter* all = nullptr;
  int is_capturing = 0;
  md_driver.is_capturing(scope.stream, &is_capturing);
  if (is_capturing != 0) {
    MD_TRY(md_new_counter(md, own, scope.index));
    found = own.data<void>();
    return true;
  }
  for (md_Counter* each = __atomic_load_n(&all, __ATOMIC_ACQUIRE); each != nullptr; each = each->next)
    if (each->stream == scope.stream) {
      found = each->tensor.data<void>();
      return true;
    }
  md_Tensor tensor;
  MD_TRY(md_new_counter(md, tensor, scope.index));
  md_Counter* made = new (malloc(sizeof(md_Counter))) md_Counter{scope.stream, tensor.take(), nullptr};
  found = made->tensor.data<void>();
  made->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&all, &made->next, made, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
  return true;
}

// A launch that Python makes: the machine code does not take the arguments, or the launches are measured.
__attribute__((cold, noinline)) static bool md_launch_by_python(md_Call& md, const md_Kernel& kernel, void* stream, md_Values given) {
  if (md.python == nullptr)
    return md_fail(md, "RuntimeError", "%s has no machine code for these sizes or addresses, and only Python compiles it", kernel.name);
  md_Value values[given.size() + 1];
  memcpy(values, given.begin(), given.size() * sizeof(md_Value));
  values[given.size()] = md_number((int64_t)stream);
  char kinds[given.size() + 2];
  memcpy(kinds, kernel.kinds, given.size());
  memcpy(kinds + given.size(), "i", 2);
  return md.python(md, kernel.name, kinds, values, nullptr, 0);
}

__attribute__((cold, noinline)) static bool md_refused(md_Call& md, const md_Launch& launch, int code, const char* node) {
  md.node = node;
  return md_fail(md, "RuntimeError", "CUDA error: %s (%d, at the launch of %s)%s", md_driver_error(code), code, launch.name,
                 md_driver_hint(code));
}

inline bool md_Kernel::operator()(md_Call& md, const md_Scope& scope, md_Values given, const char* node) const {
  const md_Launch* record = __atomic_load_n(&launch, __ATOMIC_ACQUIRE);
  md_Word words[MAX_ARGUMENTS + 4];
  long count = 0;
  for (const md_Value& value : given) {
    if (kinds[count] == 't') words[count++].pointer = md_data(value.tensor);
    else words[count++].integer = value.integer;
  }
  if (record == nullptr || !md_takes(*record, words, count))
    return other != nullptr ? (*other)(md, scope, given, node) : md_launch_by_python(md, *this, scope.stream, given);
  const int64_t programs = md_evaluate(record->programs, words);
  if (programs <= 0) return true;
  if (programs > MOST_IN_INT32) {
    md.node = node;
    return md_fail(md, "OverflowError", "%s would have %lld programs", name, (long long)programs);
  }
  md_Tensor counter, memory;
  if (has_counter) MD_TRY(md_counter(md, scope, counter, words[count++].pointer));
  if (scratch != 0) {
    MD_TRY(md_empty_cuda(md, memory, md_uint8, {programs * scratch}, {1}, scope.index));
    words[count++].pointer = memory.data<void>();
  }
  const int code = md_submit(*record, (unsigned)programs, scope.stream, words);
  return __builtin_expect(code == 0, 1) || md_refused(md, *record, code, node);
}
