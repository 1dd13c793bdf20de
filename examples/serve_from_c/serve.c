/* Serves a package of minductor from C: reads rows of float32 from stdin, writes the class of each row to stdout.

     serve MODEL_FOLDER FEATURES [EXPECTED_FILE] < rows.bin

   With EXPECTED_FILE it also compares the results with the file's and ends with 1 if one is further away than 1e-5.
   No Python and no torch runs here. The five functions that a package's library offers are declared in minductor.h:
   open, run (from any thread), free the results, close. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "minductor.h"

enum { FLOAT32 = 6, MAX_ROWS = 4096 };

typedef struct {
  md_graph* (*open_file)(const char*);
  int (*run)(md_graph*, const md_tensor*, int64_t, md_tensor*, int64_t, char*, int64_t);
  void (*release)(md_tensor*, int64_t);
  void (*close)(md_graph*);
} library;

static void fail(const char* what) {
  fprintf(stderr, "serve: %s\n", what);
  exit(1);
}

static void* symbol(void* handle, const char* name) {
  void* found = dlsym(handle, name);
  if (found == NULL) fail(dlerror());
  return found;
}

static library load(const char* folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/plain.so", folder);
  void* handle = dlopen(path, RTLD_NOW);
  if (handle == NULL) fail(dlerror());
  library found;
  *(void**)&found.open_file = symbol(handle, "md_open_file");
  *(void**)&found.run = symbol(handle, "md_run");
  *(void**)&found.release = symbol(handle, "md_free");
  *(void**)&found.close = symbol(handle, "md_close");
  return found;
}

static float* read_floats(FILE* file, int64_t most, int64_t* count) {
  float* values = malloc(most * sizeof(float));
  if (file == NULL || values == NULL) fail("a file cannot be read");
  *count = (int64_t)fread(values, sizeof(float), most, file);
  return values;
}

/* The largest difference from the numbers in a file; infinity if there are not as many. */
static double worst(const char* path, const float* values, int64_t count) {
  int64_t expected_count;
  float* expected = read_floats(fopen(path, "rb"), count + 1, &expected_count);
  double most = expected_count == count ? 0 : INFINITY;
  for (int64_t i = 0; i < count && i < expected_count; i++) most = fmax(most, fabs((double)values[i] - expected[i]));
  free(expected);
  return most;
}

int main(int argc, char** argv) {
  if (argc < 3 || atoi(argv[2]) < 1) fail("usage: serve MODEL_FOLDER FEATURES [EXPECTED_FILE] < rows.bin");
  const int64_t features = atoi(argv[2]);
  const library minductor = load(argv[1]);
  char path[4096];
  snprintf(path, sizeof path, "%s/constants.bin", argv[1]);
  md_graph* graph = minductor.open_file(path); /* maps the weights */
  if (graph == NULL) fail("the weights cannot be mapped");

  int64_t count;
  float* rows = read_floats(stdin, MAX_ROWS * features, &count);
  const int64_t sizes[] = {count / features, features}, strides[] = {features, 1};
  const md_tensor input = {rows, FLOAT32, 2, sizes, strides, NULL};
  md_tensor output;
  char error[512];
  if (minductor.run(graph, &input, 1, &output, 1, error, sizeof error) != 0) fail(error);

  const float* probabilities = output.data;
  const int64_t classes = output.sizes[1];
  for (int64_t row = 0; row < output.sizes[0]; row++) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
      if (probabilities[row * classes + c] > probabilities[row * classes + best]) best = c;
    printf("row %lld: class %lld, probability %.3f\n", (long long)row, (long long)best,
           probabilities[row * classes + best]);
  }
  int status = 0;
  if (argc > 3) {
    const double difference = worst(argv[3], probabilities, output.sizes[0] * classes);
    status = !(difference <= 1e-5);
    printf("%s eager's results: the largest difference is %.1e\n", status ? "NOT" : "equal to", difference);
  }
  minductor.release(&output, 1);
  minductor.close(graph);
  free(rows);
  return status;
}
