// For hosts in C: checks inputs against what was exported, and reads constants from the package's file.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((cold)) static bool md_unexpected(md_Call& md, const char* name, const char* what, md_Shown has, md_Shown wants) {
  return md_fail(md, "ValueError", "%s: its %s are %s, and here they have to be %s", name, what, has.text, wants.text);
}

static bool md_typed(md_Call& md, const md_tensor& given, const char* name, md_DType dtype, int64_t ndim) {
  if (given.dtype != dtype) return md_fail(md, "ValueError", "%s: its dtype is %d, and %d was exported", name, given.dtype, dtype);
  if (given.ndim != ndim)
    return md_fail(md, "ValueError", "%s: it has %d dimensions, and %lld were exported", name, given.ndim, (long long)ndim);
  return given.data != nullptr || ndim > 0 || md_fail(md, "ValueError", "%s: it has no memory", name);
}

// Finds the number for which `told` is `scale * number + shift`.
static bool md_told(md_Call& md, const char* name, int64_t told, int64_t scale, int64_t shift, int64_t low, int64_t high, int64_t& number) {
  number = (told - shift) / scale;
  if (number * scale == told - shift && number >= low && number <= high) return true;
  return md_fail(md, "ValueError", "%s: %lld is not among the sizes that were exported", name, (long long)told);
}

// Checks sizes, and the strides of dimensions with more than one element.
static bool md_shaped(md_Call& md, const md_tensor& given, const char* name, md_Sizes size, md_Sizes stride) {
  const int64_t ndim = size.size();
  bool has_elements = true, is_laid_out = true;
  for (int64_t dim = 0; dim < ndim; dim++) {
    if (given.sizes[dim] != size.begin()[dim])
      return md_unexpected(md, name, "sizes", md_Shown(given.sizes, ndim), md_Shown(size.begin(), ndim));
    has_elements = has_elements && given.sizes[dim] != 0;
    is_laid_out = is_laid_out && (given.sizes[dim] == 1 || given.strides[dim] == stride.begin()[dim]);
  }
  if (has_elements && given.data == nullptr) return md_fail(md, "ValueError", "%s: it has no memory", name);
  return is_laid_out || !has_elements ||
         md_unexpected(md, name, "strides", md_Shown(given.strides, ndim), md_Shown(stride.begin(), ndim));
}

// A constant: its first byte in the file, and the place of its sizes and strides in their table.
struct md_Place {
  int64_t offset;
  md_DType dtype;
  int32_t ndim;
  int64_t layout;
};

// The first bytes of a file, mapped; null if it is shorter.
static char* md_mapped(const char* path, int64_t bytes) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat facts;
  char* memory = nullptr;
  if (file >= 0 && fstat(file, &facts) == 0 && facts.st_size >= bytes && bytes > 0) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    memory = mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
  }
  if (file >= 0) close(file);
  return memory;
}

// Opens the graph with constants that lie in `memory`.
static md_graph* md_open_in(char* memory, const md_Place* places, int64_t count, const int64_t* layouts) {
  md_tensor* constants = static_cast<md_tensor*>(calloc(count + 1, sizeof(md_tensor)));
  for (int64_t n = 0; n < count; n++) {
    const int64_t* layout = layouts + places[n].layout;
    constants[n] = {memory + places[n].offset, places[n].dtype, places[n].ndim, layout, layout + places[n].ndim, nullptr};
  }
  md_graph* graph = md_open(constants, count);
  free(constants);
  return graph;
}

static md_graph* md_open_mapped(const char* path, const md_Place* places, int64_t count, const int64_t* layouts, int64_t bytes) {
  char* memory = md_mapped(path, bytes);
  if (memory == nullptr && bytes > 0) return nullptr;
  md_graph* graph = md_open_in(memory, places, count, layouts);
  if (graph != nullptr) {
    graph->mapped = memory;
    graph->mapped_bytes = bytes;
  } else if (memory != nullptr) {
    munmap(memory, bytes);
  }
  return graph;
}

#define MD_PACKAGE(count, bytes) \
  MD_EXPORT md_graph* md_open_file(const char* path) { return md_open_mapped(path, md_places, count, md_layouts, bytes); }
