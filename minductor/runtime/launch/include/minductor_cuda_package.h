// For hosts in C: the machine code of a package for a GPU, and its constants, which are sent there once.
//
// The binaries lie in a file beside that of the constants. Stderr says why one of them cannot be loaded. torch's functions
// and the driver's come from libraries that the dynamic linker finds.
#pragma once
#include <dlfcn.h>
#include <pthread.h>

#include "minductor_package.h"

// A binary: the number of its kernel, its place in the file, and what a launch needs (md_Launch, md_Kernel). Those of one
// kernel stand in the order in which they are tried.
struct md_Binary {
  int64_t kernel, offset, bytes;
  const char* entry;
  const char* kinds;
  const md_Step* programs;
  const md_Step* greatest_index;
  int threads, shared, is_aligned;
  int64_t scratch, has_counter;
};

__attribute__((cold, format(printf, 1, 2))) static bool md_complain(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("minductor: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  return false;
}

static bool md_find(void* library, const char* name, void* place) {
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  memcpy(place, &found, sizeof found);
  return found != nullptr || md_complain("%s: %s", name, library == nullptr ? dlerror() : "the library has no such function");
}

// The binaries of a package for one target, with which the file's name begins. `cuda`: the version whose assembler made them.
struct md_GpuCode {
  const char *file, *cuda;
  const md_Binary* rows;
  int64_t count;
  const char* const* kinds;
};

// Says why the binaries are not loaded: both versions, and what the GPU is.
__attribute__((cold)) static bool md_complain_of_driver(void* driver, const md_GpuCode& code, int status) {
  int (*version_of)(int*) = nullptr;
  int (*attribute_of)(int*, int, int) = nullptr;
  int version = 0, major = 0, minor = 0;
  if (md_find(driver, "cuDriverGetVersion", &version_of)) version_of(&version);
  if (md_find(driver, "cuDeviceGetAttribute", &attribute_of)) {
    attribute_of(&major, 75, 0);  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    attribute_of(&minor, 76, 0);
  }
  return md_complain("the driver, of CUDA %d.%d for a GPU of compute capability %d.%d, does not load the machine code in %s, made with"
                     " CUDA %s: %s (%d)", version / 1000, version % 1000 / 10, major, minor, code.file, code.cuda,
                     md_driver_error(status), status);
}

// Loads the binaries, which stay loaded. `memory`: what is in their file.
static bool md_load_binaries(void* driver, const md_GpuCode& code, const char* memory) {
  int (*init)(unsigned) = nullptr;
  int (*load)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned) = nullptr;
  int (*kernel_of)(void**, void*, const char*) = nullptr;
  int (*devices)(int*) = nullptr;
  int (*set)(int, int, void*, int) = nullptr;
  MD_TRY(md_find(driver, "cuInit", &init) && md_find(driver, "cuLibraryLoadData", &load));
  MD_TRY(md_find(driver, "cuLibraryGetKernel", &kernel_of) && md_find(driver, "cuDeviceGetCount", &devices));
  MD_TRY(md_find(driver, "cuKernelSetAttribute", &set));
  int status = init(0), n_devices = 0;
  for (int64_t n = 0; n < code.count && status == 0; n++) {
    const md_Binary& row = code.rows[n];
    void *library = nullptr, *handle = nullptr;
    status = load(&library, memory + row.offset, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (status == 0) status = kernel_of(&handle, library, row.entry);
    if (status == 0 && row.shared > 48 * 1024) status = devices(&n_devices);
    for (int device = 0; status == 0 && row.shared > 48 * 1024 && device < n_devices; device++) status = set(8, row.shared, handle, device);
    md_Kernel* place = &md_kernels[row.kernel];
    while (place->other != nullptr) place = const_cast<md_Kernel*>(place->other);
    md_Launch* record = static_cast<md_Launch*>(calloc(1, sizeof(md_Launch)));
    *record = {place->name, nullptr, 0, nullptr, handle, row.programs, row.greatest_index, row.kinds, (int)strlen(row.kinds), row.threads,
               row.shared, row.is_aligned};
    if (place->launch != nullptr) {
      md_Kernel* next = static_cast<md_Kernel*>(calloc(1, sizeof(md_Kernel)));
      next->name = place->name;
      next->kinds = place->kinds;
      place->other = next;
      place = next;
    }
    place->launch = record;
    place->scratch = row.scratch;
    place->has_counter = row.has_counter;
  }
  return status == 0 || md_complain_of_driver(driver, code, status);
}

// Fills in the tables of minductor_cuda.h. `path`: of the constants, beside which the code lies.
static bool md_connect(const char* path, const md_GpuCode& code) {
  char file[4096];
  const char* slash = strrchr(path, '/');
  snprintf(file, sizeof file, "%.*s%s", slash == nullptr ? 0 : (int)(slash + 1 - path), path, code.file);
  const int64_t bytes = code.count > 0 ? code.rows[code.count - 1].offset + code.rows[code.count - 1].bytes : 0;
  const char* memory = md_mapped(file, bytes);
  if (memory == nullptr && bytes > 0) return md_complain("%s is missing or too short", file);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *torch = dlopen("libtorch_cuda.so", RTLD_NOW);
  for (const md_Link* link = md_links; link->name != nullptr; link++) MD_TRY(md_find(torch, link->name, link->function));
  MD_TRY(md_find(driver, "cuLaunchKernel", &md_driver.launch) && md_find(driver, "cuGetErrorString", &md_driver.error_string));
  MD_TRY(md_find(driver, "cuPointerGetAttribute", &md_driver.pointer_attribute));
  MD_TRY(md_find(driver, "cuDevicePrimaryCtxRetain", &md_driver.retain_context));
  MD_TRY(md_find(driver, "cuCtxSetCurrent", &md_driver.set_context));
  MD_TRY(md_find(driver, "cuStreamIsCapturing", &md_driver.is_capturing));
  for (int64_t n = 0; code.kinds[n] != nullptr; n++) md_kernels[n].kinds = code.kinds[n];
  return md_load_binaries(driver, code, memory);
}

// Sends the constants to the current GPU, on which the graph works from then on.
static bool md_send(md_Call& md, md_Tensor& sent, void* memory, int64_t bytes) {
  const int64_t one = 1;
  md_Tensor here;
  MD_TRY(md_empty_cuda(md, sent, md_uint8, {bytes > 0 ? bytes : 1}, {1}, -1));
  md_home_type = md_cuda();
  md_home_index = md_gpu = md_device_index(sent.handle);
  if (bytes == 0) return true;
  MD_TRY(md_torch(md, aoti_torch_create_tensor_from_blob(memory, 1, &bytes, &one, 0, md_uint8, 0, 0, here.made())));
  return md_torch(md, aoti_torch_copy_(sent.handle, here.handle, 0));
}

static md_graph* md_open_on_gpu(const char* path, const md_Place* places, int64_t count, const int64_t* layouts, int64_t bytes,
                                const md_GpuCode& code) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static enum { NEW, CONNECTED, FAILED } state = NEW;
  pthread_mutex_lock(&lock);
  if (state == NEW) state = md_connect(path, code) ? CONNECTED : FAILED;
  pthread_mutex_unlock(&lock);
  if (state == FAILED) return nullptr;
  char* memory = md_mapped(path, bytes);
  if (memory == nullptr && bytes > 0) return nullptr;
  md_Call md;
  md_Tensor sent;
  md_graph* graph = nullptr;
  if (md_send(md, sent, memory, bytes)) graph = md_open_in(sent.data<char>(), places, count, layouts);
  else md_complain("%s", md.message);
  if (memory != nullptr) munmap(memory, bytes);
  if (graph != nullptr) graph->sent = sent.give();
  return graph;
}

#define MD_GPU_PACKAGE(count, bytes) \
  MD_EXPORT md_graph* md_open_file(const char* path) { return md_open_on_gpu(path, md_places, count, md_layouts, bytes, md_code); }
