/* A host in C: host LIBRARY CONSTANTS OUTPUT (DTYPE NDIM SIZE... FILE)... runs one call and writes each output as its
   number of bytes, then these. Tensors lie in rows, as the files of the inputs do. With HOST_GPU set, LIBRARY is for
   GPUs: the memory of inputs and outputs is on GPU 0, by the driver's functions. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "minductor.h"

static const int itemsizes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 0, 0, 0, 2};

/* The memory of an input begins HOST_SHIFT bytes behind a multiple of 64. */
static int shift(void) { return getenv("HOST_SHIFT") == NULL ? 0 : atoi(getenv("HOST_SHIFT")); }

static void* read_file(const char* path, int64_t bytes) {
  char* data = (char*)aligned_alloc(64, bytes / 64 * 64 + 128) + shift();
  FILE* file = fopen(path, "rb");
  if (file == NULL || fread(data, 1, bytes, file) != (size_t)bytes) exit(3);
  fclose(file);
  return data;
}

/* Calls one of the driver's functions by its name; all that are called take up to three words. */
static void gpu(const char* name, void* a, const void* b, size_t c) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*function)(void*, const void*, size_t) =
      (int (*)(void*, const void*, size_t))(driver == NULL ? NULL : dlsym(driver, name));
  const int status = function == NULL ? -1 : function(a, b, c);
  if (status != 0) fprintf(stderr, "%s: %d\n", name, status), exit(4);
}

/* Makes the context of GPU 0, which torch uses as well, the current one. */
static void use_gpu(void) {
  void* context = NULL;
  gpu("cuInit", NULL, NULL, 0);
  gpu("cuDevicePrimaryCtxRetain", &context, NULL, 0);
  gpu("cuCtxSetCurrent", context, NULL, 0);
}

/* A copy on the GPU of memory of the host. */
static void* sent(const void* data, int64_t bytes) {
  void* there = NULL;
  gpu("cuMemAlloc_v2", &there, (const void*)(bytes + 64), 0);
  there = (char*)there + shift();
  gpu("cuMemcpyHtoD_v2", there, data, bytes);
  return there;
}

int main(int argc, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
  md_graph* (*open_file)(const char*) = (md_graph * (*)(const char*)) dlsym(library, "md_open_file");
  int (*run)(md_graph*, const md_tensor*, int64_t, md_tensor*, int64_t, char*, int64_t) =
      (int (*)(md_graph*, const md_tensor*, int64_t, md_tensor*, int64_t, char*, int64_t))dlsym(library, "md_run");
  void (*release)(md_tensor*, int64_t) = (void (*)(md_tensor*, int64_t))dlsym(library, "md_free");
  void (*close)(md_graph*) = (void (*)(md_graph*))dlsym(library, "md_close");
  const int is_gpu = getenv("HOST_GPU") != NULL;
  if (is_gpu) use_gpu();
  void* files[8];
  md_tensor inputs[8];
  int64_t layouts[8][16];
  int n_inputs = 0;
  for (int at = 4; at < argc; n_inputs++) {
    const int dtype = atoi(argv[at++]), ndim = atoi(argv[at++]);
    int64_t* layout = layouts[n_inputs];
    int64_t elements = 1;
    for (int dim = 0; dim < ndim; dim++) layout[dim] = atoll(argv[at++]);
    for (int dim = ndim - 1; dim >= 0; elements *= layout[dim], dim--) layout[ndim + dim] = elements;
    files[n_inputs] = read_file(argv[at++], elements * itemsizes[dtype]);
    void* data = is_gpu ? sent(files[n_inputs], elements * itemsizes[dtype]) : files[n_inputs];
    inputs[n_inputs] = (md_tensor){data, dtype, ndim, layout, layout + ndim, NULL};
  }
  md_graph* graph = open_file(argv[2]);
  if (graph == NULL) return fprintf(stderr, "no constants\n"), 2;
  md_tensor output;
  char error[512];
  for (int call = 0; call < 3; call++) { /* each call gives the same */
    if (run(graph, inputs, n_inputs, &output, 1, error, sizeof error) != 0) return fprintf(stderr, "%s\n", error), 1;
    if (call < 2) release(&output, 1);
  }
  int64_t elements = 1;
  for (int dim = 0; dim < output.ndim; dim++) elements *= output.sizes[dim];
  const int64_t bytes = elements * itemsizes[output.dtype];
  void* result = is_gpu ? malloc(bytes) : output.data;
  if (is_gpu) gpu("cuMemcpyDtoH_v2", result, output.data, bytes);
  FILE* file = fopen(argv[3], "wb");
  fwrite(result, 1, bytes, file);
  fclose(file);
  release(&output, 1);
  close(graph);
  for (int n = 0; n < n_inputs; n++) free((char*)files[n] - shift());
  return 0;
}
