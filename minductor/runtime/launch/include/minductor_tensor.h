// Ownership of tensors: md_Tensor frees its handle, md_Lent leaves the handle to its owner.
//
// Included by minductor_torch.h and minductor_plain.h after their functions for a handle: md_drop frees it, and md_data,
// md_ndim, md_sizes, md_strides and md_dtype describe it.
#pragma once

class md_Tensor {
 public:
  md_Handle handle = nullptr;

  md_Tensor() = default;
  explicit md_Tensor(md_Handle owned) : handle(owned) {}
  md_Tensor(md_Tensor&& other) : handle(other.give()) {}
  md_Tensor& operator=(md_Tensor&& other) {
    md_Handle taken = other.give();
    reset();
    handle = taken;
    return *this;
  }
  ~md_Tensor() { reset(); }

  void reset() {
    if (handle != nullptr) md_drop(handle);
    handle = nullptr;
  }
  md_Handle give() {
    md_Handle given = handle;
    handle = nullptr;
    return given;
  }
  md_Tensor take() { return md_Tensor(give()); }
  // The place for the handle of a function's result.
  md_Handle* made() {
    reset();
    return &handle;
  }

  template <class T> T* data() const { return static_cast<T*>(md_data(handle)); }
  int64_t ndim() const { return md_ndim(handle); }
  const int64_t* sizes() const { return md_sizes(handle); }
  const int64_t* strides() const { return md_strides(handle); }
  int32_t dtype() const { return md_dtype(handle); }
};

// A tensor that somebody else owns during the call.
class md_Lent : public md_Tensor {
 public:
  explicit md_Lent(md_Handle lent) : md_Tensor(lent) {}
  ~md_Lent() { give(); }
};

static inline int64_t md_size(const md_Tensor& tensor, int64_t dim) { return tensor.sizes()[dim]; }
