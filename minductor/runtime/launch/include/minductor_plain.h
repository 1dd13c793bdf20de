// Tensors without torch, for plans that call no operator: the shared object needs libc only.
//
// A tensor is a view of a reference-counted block. A block whose memory belongs to the caller is never freed here.
#pragma once
typedef struct md_Window* md_Handle;
#include "minductor_call.h"

extern "C" int omp_get_max_threads();

struct md_Block {
  void* data;
  int64_t owners;
  bool is_lent;
};

struct md_Window {
  md_Block* block;
  char* data;
  int32_t dtype;
  int32_t ndim;
  int64_t layout[1];  // sizes, then strides
};

static void md_drop(md_Window* window) {
  if (__atomic_sub_fetch(&window->block->owners, 1, __ATOMIC_ACQ_REL) == 0) {
    if (!window->block->is_lent) free(window->block->data);
    free(window->block);
  }
  free(window);
}

static inline void* md_data(md_Handle handle) { return handle->data; }
static inline int64_t md_ndim(md_Handle handle) { return handle->ndim; }
static inline const int64_t* md_sizes(md_Handle handle) { return handle->layout; }
static inline const int64_t* md_strides(md_Handle handle) { return handle->layout + handle->ndim; }
static inline int32_t md_dtype(md_Handle handle) { return handle->dtype; }

#include "minductor_tensor.h"

static bool md_window(md_Call& md, md_Tensor& made, md_Block* block, void* data, int32_t dtype, int64_t ndim, const int64_t* sizes,
                      const int64_t* strides) {
  md_Window* window = static_cast<md_Window*>(malloc(sizeof(md_Window) + 2 * ndim * sizeof(int64_t)));
  if (window == nullptr) return md_fail(md, "MemoryError", "out of memory");
  *window = {block, static_cast<char*>(data), dtype, (int32_t)ndim, {}};
  for (int64_t dim = 0; dim < ndim; dim++) window->layout[dim] = sizes[dim], window->layout[ndim + dim] = strides[dim];
  __atomic_add_fetch(&block->owners, 1, __ATOMIC_RELAXED);
  made = md_Tensor(window);
  return true;
}

// A block with no owner yet: the memory at `lent`, or new memory of so many bytes.
static md_Block* md_block(md_Call& md, void* lent, int64_t bytes) {
  md_Block* block = static_cast<md_Block*>(malloc(sizeof(md_Block)));
  void* data = lent;
  if (block != nullptr && lent == nullptr && posix_memalign(&data, 64, bytes > 0 ? bytes : 1) != 0) {
    free(block);
    block = nullptr;
  }
  if (block != nullptr && lent == nullptr) md_huge_pages(data, bytes);
  if (block == nullptr) md_fail(md, "MemoryError", "out of memory");
  else *block = {data, 0, lent != nullptr};
  return block;
}

static bool md_owned(md_Call& md, md_Tensor& made, md_Block* block, int32_t dtype, int64_t ndim, const int64_t* sizes,
                     const int64_t* strides) {
  if (md_window(md, made, block, block->data, dtype, ndim, sizes, strides)) return true;
  if (!block->is_lent) free(block->data);
  free(block);
  return false;
}

static bool md_new(md_Call& md, md_Tensor& made, int32_t dtype, int64_t ndim, const int64_t* sizes, const int64_t* strides) {
  int64_t elements = 1;
  for (int64_t dim = 0; dim < ndim; dim++) elements = elements == 0 || sizes[dim] == 0 ? 0 : elements + (sizes[dim] - 1) * strides[dim];
  md_Block* block = md_block(md, nullptr, elements * md_itemsize(dtype));
  return block != nullptr && md_owned(md, made, block, dtype, ndim, sizes, strides);
}

static inline bool md_empty(md_Call& md, md_Tensor& made, md_DType dtype, md_Sizes size, md_Sizes stride) {
  return md_new(md, made, dtype, size.size(), size.begin(), stride.begin());
}

static bool md_view(md_Call& md, md_Tensor& made, const md_Tensor& of, md_Sizes size, md_Sizes stride, int64_t offset) {
  char* data = of.handle->data + offset * md_itemsize(of.dtype());
  return md_window(md, made, of.handle->block, data, of.dtype(), size.size(), size.begin(), stride.begin());
}

// Copies elements in the order of their indices; a dimension of stride 0 in `into` is written once.
static void md_copy(char* into, const char* from, int64_t itemsize, int64_t ndim, const int64_t* size, const int64_t* into_stride,
                    const int64_t* from_stride) {
  if (ndim == 0) {
    memcpy(into, from, itemsize);
    return;
  }
  const int64_t count = into_stride[0] == 0 && size[0] > 1 ? 1 : size[0];
  for (int64_t n = 0; n < count; n++)
    md_copy(into + n * into_stride[0] * itemsize, from + n * from_stride[0] * itemsize, itemsize, ndim - 1, size + 1, into_stride + 1,
            from_stride + 1);
}

// Replaces a tensor by a copy with these strides.
static bool md_copied(md_Call& md, md_Tensor& tensor, int64_t ndim, const int64_t* sizes, const int64_t* strides) {
  md_Tensor copy;
  MD_TRY(md_new(md, copy, tensor.dtype(), ndim, sizes, strides));
  md_copy(copy.data<char>(), tensor.data<char>(), md_itemsize(tensor.dtype()), ndim, sizes, strides, tensor.strides());
  tensor = copy.take();
  return true;
}

// A second owner of the same view; null without memory for it.
static md_Handle md_share(md_Handle of) {
  md_Call unheard;
  md_Tensor shared;
  md_window(unheard, shared, of->block, of->data, of->dtype, of->ndim, of->layout, of->layout + of->ndim);
  return shared.give();
}

static inline bool md_is_here(const md_Tensor&) { return true; }
template <class N> static inline bool md_fetch(md_Call&, const md_Tensor&, N&) { return false; }

// The start of the memory that a tensor is a view of.
static inline const void* md_memory(md_Handle handle) { return handle->block->data; }

static inline int64_t md_threads() { return omp_get_max_threads(); }

static bool md_lent(md_Call& md, md_Value& value, const md_tensor& given) {
  md_Tensor lent;
  static char nothing[1];
  md_Block* block = md_block(md, given.data != nullptr ? given.data : nothing, 0);
  MD_TRY(block != nullptr && md_owned(md, lent, block, given.dtype, given.ndim, given.sizes, given.strides));
  value.tensor = lent.give();
  return true;
}

#include "minductor_control.h"
#include "minductor_run.h"
