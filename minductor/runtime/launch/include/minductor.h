/* A compiled graph, for a host in C: what a shared object of minductor exports.
   Sizes and strides count elements; `dtype` is torch's number (0 uint8, 1 int8, 2 int16, 3 int32, 4 int64, 5 half,
   6 float, 7 double, 11 bool, 15 bfloat16). A number is a tensor of int64, double or bool without dimensions.
   In a package for GPUs the memory of tensors, but not that of numbers, is on the GPU which is current at md_open_file;
   calls launch on torch's current stream there, and do not wait. */
#ifndef MINDUCTOR_H
#define MINDUCTOR_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct md_tensor {
  void* data;
  int32_t dtype;
  int32_t ndim;
  const int64_t* sizes;
  const int64_t* strides;
  void* owner; /* of an output: for md_free; of an input: unread */
} md_tensor;

typedef struct md_graph md_graph;

/* Binds the graph to its constants, whose memory stays the caller's and is read until md_close; NULL if there are not
   so many. */
md_graph* md_open(const md_tensor* constants, int64_t n_constants);
/* The same with a package's constants.bin, which is mapped; NULL if it cannot be, or is too short. */
md_graph* md_open_file(const char* constants_path);
/* One call, from any thread: 0, or 1 with a text in `error`. Inputs are lent; the outputs are given, until md_free. */
int md_run(md_graph* graph, const md_tensor* inputs, int64_t n_inputs, md_tensor* outputs, int64_t n_outputs, char* error,
           int64_t error_size);
void md_free(md_tensor* outputs, int64_t n_outputs);
void md_close(md_graph* graph);

#ifdef __cplusplus
}
#endif
#endif
