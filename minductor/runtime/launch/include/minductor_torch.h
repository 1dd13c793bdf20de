// Torch's tensors in generated calls: an md_Tensor that owns a handle, by functions that torch exports for C.
//
// Torch's shim.h includes C++ headers, which take 0.3 s per unit. So the declarations that calls need are repeated here
// (tests/runtime/test_native.py compares them with torch's). A function of torch returns 0, or 1 with an error text.
#pragma once
typedef struct AtenTensorOpaque* md_Handle;
#include "minductor_call.h"

extern "C" {
int32_t aoti_torch_delete_tensor_object(md_Handle);
int32_t aoti_torch_new_tensor_handle(md_Handle, md_Handle*);
int32_t aoti_torch_get_data_ptr(md_Handle, void**);
int32_t aoti_torch_get_dtype(md_Handle, int32_t*);
int32_t aoti_torch_get_dim(md_Handle, int64_t*);
int32_t aoti_torch_get_device_type(md_Handle, int32_t*);
int32_t aoti_torch_get_device_index(md_Handle, int32_t*);
int32_t aoti_torch_get_storage_offset(md_Handle, int64_t*);
int32_t aoti_torch_get_sizes(md_Handle, int64_t**);
int32_t aoti_torch_get_strides(md_Handle, int64_t**);
int32_t aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device,
                                 int32_t index, md_Handle*);
int32_t aoti_torch__reinterpret_tensor(md_Handle, int64_t ndim, const int64_t* sizes, const int64_t* strides, int64_t offset,
                                       md_Handle*);
int32_t aoti_torch_item_bool(md_Handle, bool*);
int32_t aoti_torch_item_int64(md_Handle, int64_t*);
int32_t aoti_torch_item_float64(md_Handle, double*);
int32_t aoti_torch_zero_(md_Handle);
int32_t aoti_torch_copy_(md_Handle self, md_Handle source, int32_t non_blocking);
int32_t aoti_torch_create_tensor_from_blob(void* data, int64_t ndim, const int64_t* sizes, const int64_t* strides, int64_t offset,
                                           int32_t dtype, int32_t device, int32_t index, md_Handle*);
int32_t torch_get_num_threads(uint32_t*);
// since torch 2.13; before, torch writes its text to stderr
__attribute__((weak)) const char* torch_exception_get_what_without_backtrace();
}

// The error of a function of torch, with its text.
__attribute__((cold, noinline)) static bool md_failed(md_Call& md) {
  const char* what = nullptr;
  if (torch_exception_get_what_without_backtrace) what = torch_exception_get_what_without_backtrace();
  if (what == nullptr) what = "a function of torch failed; stderr has its message";
  if (what[0] == 0) what = "a function of torch failed without a message";
  return md_fail(md, "RuntimeError", "%s", what);
}

// Whether a function of torch succeeded; if not, the error is set.
static inline bool md_torch(md_Call& md, int32_t status) { return __builtin_expect(status == 0, 1) || md_failed(md); }

// The error of an operator that failed. Torch's C interface gives the text of an exception but not its class, and nothing
// of an exception that Python raised inside the operator. So a host with Python calls the operator again, by a lambda that
// takes a handle, an int64_t or a double for each letter of `kinds`. Without Python, the error is a RuntimeError.
__attribute__((cold, noinline)) static bool md_eager(md_Call& md, const char* lambda, const char* kinds, ...) {
  md_failed(md);
  if (md.eager == nullptr) {
    if (!torch_exception_get_what_without_backtrace)
      md_fail(md, "RuntimeError", "%s failed; stderr has its message", strchr(lambda, ':') + 2);
    return false;
  }
  const size_t count = strlen(kinds);
  md_Value given[count + 1];
  va_list arguments;
  va_start(arguments, kinds);
  for (size_t n = 0; n < count; n++) {
    if (kinds[n] == 't') given[n].tensor = va_arg(arguments, md_Handle);
    else if (kinds[n] == 'd') given[n].real = va_arg(arguments, double);
    else given[n].integer = va_arg(arguments, int64_t);
  }
  va_end(arguments);
  md.eager(md, lambda, kinds, given);
  return false;
}

// A call of an operator, whose status is 0 on success; the further arguments are those of `md_eager`.
#define MD_CALL(status, ...)                                                  \
  do {                                                                        \
    if (__builtin_expect((status) != 0, 0)) return md_eager(md, __VA_ARGS__); \
  } while (0)

static inline void md_drop(md_Handle handle) { aoti_torch_delete_tensor_object(handle); }
static inline void* md_data(md_Handle handle) {
  void* found = nullptr;
  aoti_torch_get_data_ptr(handle, &found);
  return found;
}
static inline int64_t md_ndim(md_Handle handle) {
  int64_t found = 0;
  aoti_torch_get_dim(handle, &found);
  return found;
}
static inline const int64_t* md_sizes(md_Handle handle) {
  int64_t* found = nullptr;
  aoti_torch_get_sizes(handle, &found);
  return found;
}
static inline const int64_t* md_strides(md_Handle handle) {
  int64_t* found = nullptr;
  aoti_torch_get_strides(handle, &found);
  return found;
}
static inline int32_t md_dtype(md_Handle handle) {
  int32_t found = 0;
  aoti_torch_get_dtype(handle, &found);
  return found;
}

#include "minductor_tensor.h"

// torch's number of the kind of device that a tensor is on; 0 is the CPU.
static inline int32_t md_device_type(md_Handle handle) {
  int32_t found = 0;
  aoti_torch_get_device_type(handle, &found);
  return found;
}
static inline int32_t md_device_index(md_Handle handle) {
  int32_t found = 0;
  aoti_torch_get_device_index(handle, &found);
  return found;
}

// Whether this code can read a tensor's memory; torch reads a number out of another device's.
static inline bool md_is_here(const md_Tensor& tensor) { return md_device_type(tensor.handle) == 0; }
static inline bool md_fetch(md_Call& md, const md_Tensor& tensor, bool& number) {
  return md_torch(md, aoti_torch_item_bool(tensor.handle, &number));
}
static inline bool md_fetch(md_Call& md, const md_Tensor& tensor, int64_t& number) {
  return md_torch(md, aoti_torch_item_int64(tensor.handle, &number));
}
static inline bool md_fetch(md_Call& md, const md_Tensor& tensor, double& number) {
  return md_torch(md, aoti_torch_item_float64(tensor.handle, &number));
}

// A second owner of the same tensor.
static inline md_Handle md_share(md_Handle handle) {
  md_Handle shared = nullptr;
  if (handle != nullptr) aoti_torch_new_tensor_handle(handle, &shared);
  return shared;
}

static inline int64_t md_bytes(md_DType dtype, md_Sizes size, md_Sizes stride) {
  int64_t elements = 1;
  for (size_t dim = 0; dim < size.size(); dim++) elements += (size.begin()[dim] - 1) * stride.begin()[dim];
  return elements * md_itemsize(dtype);
}

__attribute__((cold, noinline)) static bool md_no_memory(md_Call& md, int64_t bytes) {
  return md_eager(md, "lambda n: torch.empty(n, dtype=torch.uint8)", "i", bytes);
}

static inline bool md_empty(md_Call& md, md_Tensor& made, md_DType dtype, md_Sizes size, md_Sizes stride) {
  const int32_t status = aoti_torch_empty_strided(size.size(), size.begin(), stride.begin(), dtype, 0, 0, made.made());
  if (__builtin_expect(status != 0, 0)) return md_no_memory(md, md_bytes(dtype, size, stride));
  md_huge_pages(made.data<char>(), md_bytes(dtype, size, stride));
  return true;
}

// A strided view of `of`; the offset counts from its first element.
static inline bool md_view(md_Call& md, md_Tensor& made, const md_Tensor& of, md_Sizes size, md_Sizes stride, int64_t offset) {
  return md_torch(md, aoti_torch__reinterpret_tensor(of.handle, size.size(), size.begin(), stride.begin(), offset, made.made()));
}

// Replaces a tensor by a copy with these strides; a dimension of stride 0 has one element to write.
static bool md_copied(md_Call& md, md_Tensor& tensor, int64_t ndim, const int64_t* sizes, const int64_t* strides) {
  md_Tensor copy, into, from;
  int64_t written[ndim + 1];
  for (int64_t dim = 0; dim < ndim; dim++) written[dim] = strides[dim] == 0 && sizes[dim] > 1 ? 1 : sizes[dim];
  const int32_t type = md_device_type(tensor.handle), index = md_device_index(tensor.handle);
  MD_TRY(md_torch(md, aoti_torch_empty_strided(ndim, sizes, strides, tensor.dtype(), type, index, copy.made())));
  MD_TRY(md_torch(md, aoti_torch__reinterpret_tensor(copy.handle, ndim, written, strides, 0, into.made())));
  MD_TRY(md_torch(md, aoti_torch__reinterpret_tensor(tensor.handle, ndim, written, tensor.strides(), 0, from.made())));
  MD_TRY(md_torch(md, aoti_torch_copy_(into.handle, from.handle, 0)));
  tensor = copy.take();
  return true;
}

// The start of the memory that a tensor is a view of.
static inline const void* md_memory(md_Handle handle) {
  int64_t offset = 0;
  aoti_torch_get_storage_offset(handle, &offset);
  return static_cast<char*>(md_data(handle)) - offset * md_itemsize(md_dtype(handle));
}

static inline int64_t md_threads() {
  uint32_t found = 1;
  torch_get_num_threads(&found);
  return found;
}

// The device of the memory that a host passes: torch's number of its kind, and its own number.
static int32_t md_home_type = 0, md_home_index = 0;

static inline bool md_lent(md_Call& md, md_Value& value, const md_tensor& given) {
  return md_torch(md, aoti_torch_create_tensor_from_blob(given.data, given.ndim, given.sizes, given.strides, 0, given.dtype, md_home_type,
                                                         md_home_index, &value.tensor));
}

#include "minductor_control.h"

// --- calls of operators

// An optional value for a function of torch: a pointer to the value, which lives until the call ends.
template <class T> struct md_Some {
  T value;
  md_Some(T value) : value(value) {}
  operator T*() { return &value; }
};

// A list for a function of torch: of words, of pointers, or an optional list.
template <class T> struct md_Row {
  const T* first;
  md_Row(std::initializer_list<T> items) : first(items.begin()) {}
  const T* words() const { return first; }
  T* pointers() const { return const_cast<T*>(first); }
  const T** optional() { return &first; }
};

// An entry of the dispatcher's stack. It owns its content, which the call takes over.
using md_Entry = uint64_t;
using md_List = struct StableListOpaque*;
using md_String = struct StringOpaque*;

extern "C" {
int32_t aoti_torch_call_dispatcher(const char* name, const char* overload, md_Entry* stack);
int32_t torch_new_list_reserve_size(size_t, md_List*);
int32_t torch_list_push_back(md_List, md_Entry);
int32_t torch_list_size(md_List, size_t*);
int32_t torch_list_get_item(md_List, size_t, md_Entry*);
int32_t torch_delete_list(md_List);
int32_t torch_new_string_handle(const char*, size_t, md_String*);
__attribute__((weak)) int32_t torch_new_stable_ivalue(md_Entry**);  // since torch 2.13; before, C++'s own `new`
}
void* md_new(size_t) asm("_Znwm");

static constexpr md_Entry md_none = 0;
static inline md_Entry md_word(int64_t value) { return (md_Entry)value; }
static inline md_Entry md_real(double value) { return __builtin_bit_cast(md_Entry, value); }
static inline md_Entry md_own(const md_Tensor& tensor) { return (md_Entry)md_share(tensor.handle); }
static inline md_Entry md_device(int64_t type, int32_t index = -1) { return (md_Entry)type << 32 | (uint32_t)index; }
static inline md_Entry md_some(md_Entry value) {
  md_Entry* held = nullptr;
  if (torch_new_stable_ivalue) torch_new_stable_ivalue(&held);
  else held = static_cast<md_Entry*>(md_new(sizeof(md_Entry)));
  *held = value;
  return (md_Entry)held;
}
static inline md_Entry md_list(std::initializer_list<md_Entry> items) {
  md_List list = nullptr;
  torch_new_list_reserve_size(items.size(), &list);
  for (md_Entry item : items) torch_list_push_back(list, item);
  return (md_Entry)list;
}
static inline md_Entry md_text(const char* text) {
  md_String string = nullptr;
  torch_new_string_handle(text, strlen(text), &string);
  return (md_Entry)string;
}

static void md_place(md_Entry entry, md_Tensor* into) {
  md_Tensor made((md_Handle)entry);
  if (into != nullptr) *into = made.take();
}

// Calls an operator by its name. Returns 0, or the status of the failure. `returns` has a letter for each result: 't' a
// tensor, 'l' a list of tensors, 'i' a number.
static int32_t md_operator(const char* name, const char* overload, std::initializer_list<md_Entry> given, const char* returns,
                           std::initializer_list<md_Tensor*> made) {
  const size_t count = strlen(returns);
  md_Entry stack[(given.size() > count ? given.size() : count) + 1];
  memcpy(stack, given.begin(), given.size() * sizeof(md_Entry));
  if (int32_t status = aoti_torch_call_dispatcher(name, overload, stack)) return status;
  for (size_t n = 0; n < count; n++) {
    if (returns[n] == 't') md_place(stack[n], n < made.size() ? made.begin()[n] : nullptr);
    if (returns[n] != 'l') continue;
    size_t items = 0;
    torch_list_size((md_List)stack[n], &items);
    for (size_t item = 0; item < items; item++) {
      md_Entry entry = 0;
      torch_list_get_item((md_List)stack[n], item, &entry);
      md_place(entry, item < made.size() ? made.begin()[item] : nullptr);
    }
    torch_delete_list((md_List)stack[n]);
  }
  return 0;
}

// --- calls that only Python can make

static bool md_by_python(md_Call& md, const char* what, int64_t number, std::initializer_list<md_Value> given,
                         const char* kinds, std::initializer_list<md_Tensor*> made) {
  char name[32];
  snprintf(name, sizeof name, "%s_%lld", what, (long long)number);
  if (md.python == nullptr) return md_fail(md, "RuntimeError", "%s of this graph needs Python", name);
  md_Handle found[made.size() + 1];
  MD_TRY(md.python(md, name, kinds, given.begin(), found, made.size()));
  for (size_t n = 0; n < made.size(); n++) *made.begin()[n] = md_Tensor(found[n]);
  return true;
}

static inline bool md_python(md_Call& md, int64_t handle, std::initializer_list<md_Value> given, const char* kinds,
                             std::initializer_list<md_Tensor*> made) {
  return md_by_python(md, "extern", handle, given, kinds, made);
}

// Runs the function of a partition, or replays its CUDA graph.
static inline bool md_captured(md_Call& md, int64_t number, std::initializer_list<md_Value> given, const char* kinds,
                               std::initializer_list<md_Tensor*> made) {
  return md_by_python(md, "captured", number, given, kinds, made);
}

// Makes the storage of a value that the graph returns.
static inline bool md_result(md_Call& md, int64_t number, std::initializer_list<md_Value> given, const char* kinds,
                             std::initializer_list<md_Tensor*> made) {
  return md_by_python(md, "result", number, given, kinds, made);
}

// The functions of partitions, which Python records as CUDA graphs; see md_Graph.
#define MD_PARTITIONS(...) \
  extern "C" __attribute__((visibility("default"))) const md_Graph md_partitions[] = {__VA_ARGS__, {}};

// The text of the Python functions that these calls use.
#define MD_PYTHON(text) extern "C" __attribute__((visibility("default"))) const char md_python_text[] = text;

#include "minductor_run.h"
