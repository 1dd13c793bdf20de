// Layouts that are held against the traced ones, numbers out of tensors, and the operators that call regions, over whichever md_Tensor was included.
#pragma once

// Has a tensor the size that was traced?
static bool md_sized(md_Call& md, const md_Tensor& tensor, md_Sizes size) {
  const int64_t ndim = tensor.ndim();
  if (ndim == (int64_t)size.size() && (ndim == 0 || memcmp(tensor.sizes(), size.begin(), ndim * sizeof(int64_t)) == 0)) return true;
  return md_fail(md, "RuntimeError", "an operator returned a tensor of size %s, not %s as it was traced",
                 md_Shown(tensor.sizes(), ndim).text, md_Shown(size.begin(), size.size()).text);
}

// The same; where its strides differ, the tensor becomes a copy with those.
static inline bool md_laid_out(md_Call& md, md_Tensor& tensor, md_Sizes size, md_Sizes stride) {
  MD_TRY(md_sized(md, tensor, size));
  if (size.size() == 0 || memcmp(tensor.strides(), stride.begin(), size.size() * sizeof(int64_t)) == 0) return true;
  return md_copied(md, tensor, size, stride);
}

// The number in a tensor of one element.
template <class N> static N md_item(const md_Tensor& tensor) {
  switch (tensor.dtype()) {
    case md_bool: return (N)*tensor.data<bool>();
    case md_uint8: return (N)*tensor.data<uint8_t>();
    case md_int8: return (N)*tensor.data<int8_t>();
    case md_int16: return (N)*tensor.data<int16_t>();
    case md_int32: return (N)*tensor.data<int32_t>();
    case md_int64: return (N)*tensor.data<int64_t>();
    case md_uint16: return (N)*tensor.data<uint16_t>();
    case md_uint32: return (N)*tensor.data<uint32_t>();
    case md_uint64: return (N)*tensor.data<uint64_t>();
    case md_float32: return (N)*tensor.data<float>();
    case md_float64: return (N)*tensor.data<double>();
    case md_bfloat16: {
      uint32_t bits = (uint32_t)*tensor.data<uint16_t>() << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      return (N)value;
    }
    case md_float16: {
      const uint16_t half = *tensor.data<uint16_t>();
      const int exponent = half >> 10 & 31, fraction = half & 1023;
      const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                          : exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
      return (N)(half >> 15 ? -size : size);
    }
    default: __builtin_trap();  // the plan's dtypes are those above
  }
}
