// Checks of layouts, numbers read from tensors, and the operators that call regions, for either kind of md_Tensor.
#pragma once

// Checks that a tensor has the size that was traced.
static bool md_sized(md_Call& md, const md_Tensor& tensor, md_Sizes size) {
  const int64_t ndim = tensor.ndim();
  if (ndim == (int64_t)size.size() && (ndim == 0 || memcmp(tensor.sizes(), size.begin(), ndim * sizeof(int64_t)) == 0)) return true;
  return md_fail(md, "RuntimeError", "an operator returned a tensor of size %s, not %s as it was traced",
                 md_Shown(tensor.sizes(), ndim).text, md_Shown(size.begin(), size.size()).text);
}

// The same. If the strides differ, the tensor is replaced by a copy with the traced strides.
static inline bool md_laid_out(md_Call& md, md_Tensor& tensor, md_Sizes size, md_Sizes stride) {
  MD_TRY(md_sized(md, tensor, size));
  if (size.size() == 0 || memcmp(tensor.strides(), stride.begin(), size.size() * sizeof(int64_t)) == 0) return true;
  return md_copied(md, tensor, size.size(), size.begin(), stride.begin());
}

// The number of the point that is nearest to these sizes by the sum of the differences of binary logarithms; of points
// that are equally near, the first. A size of 0 counts as 1. `points`: the sizes of each point, one behind the other.
static inline int64_t md_nearest(std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> points) {
  int64_t best = 0;
  double least = INFINITY;
  const int64_t count = (int64_t)(points.size() / sizes.size());
  for (int64_t number = 0; number < count; number++) {
    double distance = 0;
    const int64_t* point = points.begin() + number * (int64_t)sizes.size();
    for (const int64_t size : sizes) distance += fabs(log2(size < 1 ? 1.0 : (double)size) - log2((double)*point++));
    if (distance < least - 1e-9) {
      best = number;
      least = distance;
    }
  }
  return best;
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
      const double size = exponent == 31 ? (fraction ? MD_NAN : MD_INF)
                          : exponent == 0 ? __builtin_ldexp(fraction, -24) : __builtin_ldexp(1024 + fraction, exponent - 25);
      return (N)(half >> 15 ? -size : size);
    }
    default: __builtin_trap();  // a plan has no other dtypes
  }
}

// The same for a number of the plan: a uint64 may be too large for it.
template <class N> static bool md_read(md_Call& md, const md_Tensor& tensor, N& number) {
  if (!md_is_here(tensor)) return md_fetch(md, tensor, number);
  number = md_item<N>(tensor);
  return __is_same(N, double) || tensor.dtype() != md_uint64 || number >= 0 || md_too_large(md);
}

// --- regions

static inline md_Value md_lend(const md_Tensor& tensor) { return {.tensor = tensor.handle}; }

// A region: its function, and a letter for each input and output. The caller keeps its inputs.
struct md_Region {
  bool (*run)(md_Call& md, md_Value* given, md_Value* made);
  const char* takes;
  const char* gives;
};

using md_Values = std::initializer_list<md_Value>;
using md_Tensors = std::initializer_list<md_Tensor*>;

// Several tensors, which are freed together.
class md_Held {
 public:
  md_Tensor* items;
  const size_t count;

  explicit md_Held(size_t count) : items(static_cast<md_Tensor*>(calloc(count + 1, sizeof(md_Tensor)))), count(count) {}
  md_Held(const md_Held&) = delete;
  ~md_Held() {
    for (size_t n = 0; n < count; n++) items[n].reset();
    free(items);
  }
};

// Runs a region; its tensors are held, its numbers are in `made`.
static bool md_region(md_Call& md, const md_Region& region, md_Value* given, md_Value* made, md_Held& held) {
  MD_TRY(region.run(md, given, made));
  for (size_t n = 0; n < held.count; n++)
    if (region.gives[n] == 't') held.items[n] = md_Tensor(made[n].tensor);
  return true;
}

// Returns results, each in new memory: one that shares memory with an input or an earlier result is copied.
static bool md_apart(md_Call& md, md_Held& held, const char* takes, const md_Value* given, md_Tensors made) {
  const size_t n_given = strlen(takes);
  const void* seen[n_given + held.count + 1];
  size_t n_seen = 0;
  for (size_t n = 0; n < n_given; n++)
    if (takes[n] == 't') seen[n_seen++] = md_memory(given[n].tensor);
  for (size_t n = 0; n < held.count && n < made.size(); n++) {
    md_Tensor& one = held.items[n];
    if (one.handle == nullptr) continue;
    for (size_t other = 0; other < n_seen; other++)
      if (seen[other] == md_memory(one.handle)) {
        MD_TRY(md_copied(md, one, one.ndim(), one.sizes(), one.strides()));
        break;
      }
    seen[n_seen++] = md_memory(one.handle);
    if (made.begin()[n] != nullptr) *made.begin()[n] = one.take();
  }
  return true;
}

// Calls a region with values that the caller keeps.
static bool md_invoke(md_Call& md, const md_Region& region, md_Values lent, md_Tensors made) {
  md_Value given[lent.size() + 1], found[strlen(region.gives) + 1];
  md_Held held(strlen(region.gives));
  memcpy(given, lent.begin(), lent.size() * sizeof(md_Value));
  MD_TRY(md_region(md, region, given, found, held));
  return md_apart(md, held, region.takes, given, made);
}

// Calls `step` for new carried values while `going` returns true. Both take sizes, carried values, and other values.
static bool md_while(md_Call& md, const md_Region& going, md_Values going_sizes, const md_Region& step, md_Values step_sizes,
                     md_Values carried, md_Values extra, md_Tensors made) {
  const size_t n = carried.size(), n_going = going_sizes.size(), n_step = step_sizes.size();
  const size_t most = (n_going > n_step ? n_going : n_step) + n + extra.size() + 1;
  md_Value now[n + 1], given[most], found[most];
  memcpy(now, carried.begin(), n * sizeof(md_Value));
  md_Held held(n);
  for (;;) {
    memcpy(given, going_sizes.begin(), n_going * sizeof(md_Value));
    memcpy(given + n_going, now, n * sizeof(md_Value));
    memcpy(given + n_going + n, extra.begin(), extra.size() * sizeof(md_Value));
    md_Held asked(1);
    MD_TRY(md_region(md, going, given, found, asked));
    bool goes_on = found[0].integer != 0;
    if (going.gives[0] == 't') MD_TRY(md_read(md, asked.items[0], goes_on));
    if (!goes_on) break;
    memcpy(given, step_sizes.begin(), n_step * sizeof(md_Value));
    memcpy(given + n_step, now, n * sizeof(md_Value));
    memcpy(given + n_step + n, extra.begin(), extra.size() * sizeof(md_Value));
    md_Held next(n);
    MD_TRY(md_region(md, step, given, found, next));
    for (size_t k = 0; k < n; k++) {
      held.items[k] = next.items[k].take();
      now[k] = found[k];
    }
  }
  // values that were never replaced belong to the caller
  for (size_t k = 0; k < n; k++)
    if (held.items[k].handle == nullptr && step.takes[n_step + k] == 't') held.items[k] = md_Tensor(md_share(now[k].tensor));
  memcpy(given, carried.begin(), n * sizeof(md_Value));
  memcpy(given + n, extra.begin(), extra.size() * sizeof(md_Value));
  return md_apart(md, held, step.takes + n_step, given, made);
}
