// Tests whether a kernel makes NaN or infinity (option nan_asserts), for either kind of md_Tensor: as nan_asserts.py does.
//
// A generated block makes an md_Stored for each result before a launch, and calls md_finite behind it.
#pragma once

// How a float dtype writes NaN and infinity. `bits`: those of a number that decide, without its sign. Such bits are NaN
// from `nan` to `last`; equal to `infinity` they are infinite.
struct md_Float {
  int64_t bytes;  // of one number; a complex value is two of them
  int64_t parts;
  uint64_t bits;
  uint64_t infinity;
  uint64_t nan;
  const char* name;
  uint64_t last = ~0ull;
};

static md_Float md_float(int32_t dtype) {
  constexpr uint64_t f16 = 0x7c00, f32 = 0x7f800000, f64 = 0x7ff0000000000000, none = ~0ull;
  switch (dtype) {
    case md_float16: return {2, 1, 0x7fff, f16, f16 + 1, "float16"};
    case md_bfloat16: return {2, 1, 0x7fff, 0x7f80, 0x7f81, "bfloat16"};
    case md_float32: return {4, 1, 0x7fffffff, f32, f32 + 1, "float32"};
    case md_float64: return {8, 1, none >> 1, f64, f64 + 1, "float64"};
    case md_complex32: return {2, 2, 0x7fff, f16, f16 + 1, "complex32"};
    case md_complex64: return {4, 2, 0x7fffffff, f32, f32 + 1, "complex64"};
    case md_complex128: return {8, 2, none >> 1, f64, f64 + 1, "complex128"};
    case md_float8_e5m2: return {1, 1, 0x7f, 0x7c, 0x7d, "float8_e5m2"};
    case md_float8_e4m3fn: return {1, 1, 0x7f, none, 0x7f, "float8_e4m3fn"};
    case md_float8_e8m0fnu: return {1, 1, 0xff, none, 0xff, "float8_e8m0fnu"};
    // NaN is what would be the negative zero
    case md_float8_e4m3fnuz: return {1, 1, 0xff, none, 0x80, "float8_e4m3fnuz", 0x80};
    case md_float8_e5m2fnuz: return {1, 1, 0xff, none, 0x80, "float8_e5m2fnuz", 0x80};
    default: __builtin_trap();  // a wrapper tests no other dtypes
  }
}

// What an element is, as bits of a mask: a complex value may be both.
enum md_Sort : uint8_t { md_is_nan = 1, md_is_infinite = 2 };

template <class Word> static inline uint8_t md_sort(const md_Float& form, const char* element) {
  uint8_t sort = 0;
  for (int64_t part = 0; part < form.parts; part++) {
    Word word;
    memcpy(&word, element + part * sizeof(Word), sizeof(Word));
    const uint64_t value = word & form.bits;
    if (value >= form.nan && value <= form.last) sort |= md_is_nan;
    if (value == form.infinity) sort |= md_is_infinite;
  }
  return sort;
}

static int64_t md_count(const md_Tensor& tensor) {
  int64_t count = 1;
  for (int64_t dim = 0; dim < tensor.ndim(); dim++) count *= tensor.sizes()[dim];
  return count;
}

template <class Word, class Visit> static void md_each_of(const md_Tensor& tensor, const md_Float& form, Visit visit) {
  const int64_t count = md_count(tensor), last = tensor.ndim() - 1, bytes = form.bytes * form.parts;
  const int64_t row = last >= 0 ? tensor.sizes()[last] : 1, step = last >= 0 ? tensor.strides()[last] * bytes : 0;
  const int64_t *const sizes = tensor.sizes(), *const strides = tensor.strides();
  const char* const data = tensor.data<char>();
  for (int64_t n = 0; n < count;) {
    int64_t rest = n / row, place = 0;
    for (int64_t dim = last - 1; dim >= 0; dim--) {
      place += rest % sizes[dim] * strides[dim];
      rest /= sizes[dim];
    }
    const char* element = data + place * bytes;
    for (const int64_t end = n + row; n < end; n++, element += step) visit(n, md_sort<Word>(form, element));
  }
}

// Calls visit(n, sort) for each element, in the order of their indices.
template <class Visit> static void md_each(const md_Tensor& tensor, Visit visit) {
  const md_Float form = md_float(tensor.dtype());
  switch (form.bytes) {
    case 1: return md_each_of<uint8_t>(tensor, form, visit);
    case 2: return md_each_of<uint16_t>(tensor, form, visit);
    case 4: return md_each_of<uint32_t>(tensor, form, visit);
    default: return md_each_of<uint64_t>(tensor, form, visit);
  }
}

// Which sorts of values a tensor holds.
static uint8_t md_held(const md_Tensor& tensor) {
  uint8_t held = 0;
  md_each(tensor, [&](int64_t, uint8_t sort) { held |= sort; });
  return held;
}

// A result of a kernel, and what it held before the launch.
struct md_Stored {
  const char* name;
  const md_Tensor& tensor;
  const bool is_read;
  uint8_t held;
  uint8_t* before;  // the sort of each element; null if all are finite

  md_Stored(const char* name, const md_Tensor& tensor, bool is_read)
      : name(name), tensor(tensor), is_read(is_read), held(md_held(tensor)), before(nullptr) {
    if (held == 0) return;
    before = static_cast<uint8_t*>(malloc(md_count(tensor)));
    if (before != nullptr) md_each(tensor, [this](int64_t n, uint8_t sort) { before[n] = sort; });
  }
  md_Stored(const md_Stored&) = delete;
  ~md_Stored() { free(before); }
};

// The index of element `n`, as Python shows a list.
struct md_Spot {
  char text[400];
  md_Spot(const md_Tensor& tensor, int64_t n) {
    int64_t below = md_count(tensor);
    int at = snprintf(text, sizeof text, "[");
    for (int64_t dim = 0; dim < tensor.ndim() && at < 360; dim++) {
      below /= tensor.sizes()[dim];
      at += snprintf(text + at, sizeof text - at, dim ? ", %lld" : "%lld", (long long)(n / below));
      n %= below;
    }
    snprintf(text + at, sizeof text - at, "]");
  }
};

// Fails if a result has elements of a sort that no tensor and no number has that the kernel reads. `node`: the ATen nodes
// of the launch, as one key of the user's lines.
template <int n>
static bool md_finite(md_Call& md, const char* kernel, const md_Stored (&results)[n], std::initializer_list<const md_Tensor*> read,
                      std::initializer_list<double> numbers, const char* node) {
  uint8_t held[n];
  for (int at = 0; at < n; at++) held[at] = md_held(results[at].tensor);
  for (const uint8_t sort : {md_is_nan, md_is_infinite}) {
    for (const md_Stored& result : results) {
      if ((held[&result - results] & sort) == 0) continue;
      int64_t found = 0, first = 0;
      md_each(result.tensor, [&](int64_t element, uint8_t now) {
        const uint8_t old = result.before != nullptr ? result.before[element] : 0;
        if ((now & ~old & sort) != 0 && found++ == 0) first = element;
      });
      if (found == 0) continue;
      bool is_known = false;
      for (const md_Stored& other : results) is_known |= other.is_read && (other.held & sort) != 0;
      for (const md_Tensor* tensor : read) is_known |= (md_held(*tensor) & sort) != 0;
      for (const double number : numbers) is_known |= sort == md_is_nan ? __builtin_isnan(number) : __builtin_isinf(number);
      if (is_known) continue;
      md.node = node;
      return md_fail(md, "NonFiniteResult", "kernel %s stores %s in %lld of the %lld elements of %s, the first at %s; %s is %s of size %s",
                     kernel, sort == md_is_nan ? "NaN" : "infinity", (long long)found, (long long)md_count(result.tensor), result.name,
                     md_Spot(result.tensor, first).text, result.name, md_float(result.tensor.dtype()).name,
                     md_Shown(result.tensor.sizes(), result.tensor.ndim()).text);
    }
  }
  return true;
}

// Fills new memory with zeros, in which a NaN of an earlier call could look like a result.
static inline void md_zero(md_Tensor& tensor) {
  int64_t span = 1;
  for (int64_t dim = 0; dim < tensor.ndim(); dim++) {
    if (tensor.sizes()[dim] == 0) return;
    span += (tensor.sizes()[dim] - 1) * tensor.strides()[dim];
  }
  memset(tensor.data<char>(), 0, span * md_itemsize(tensor.dtype()));
}
