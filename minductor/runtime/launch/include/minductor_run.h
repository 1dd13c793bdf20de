// The functions of minductor.h, for either kind of md_Tensor: how a host in C runs the unit's graph.
#pragma once
#include <sys/mman.h>

extern "C" __attribute__((visibility("default"))) const md_Graph md_compiled;

struct md_graph {
  md_Tensor* constants;
  int64_t n_constants;
  void* mapped;  // the file of the constants
  size_t mapped_bytes;
  md_Handle sent;  // their memory on a GPU
};

// A package's own check of a call's inputs; see minductor_package.h.
__attribute__((weak)) bool md_expected(md_Call& md, const md_tensor* given);

#define MD_EXPORT extern "C" __attribute__((visibility("default")))

// Frees the values of some kinds.
static void md_release(md_Value* values, int64_t count, const char* kinds, const char* dropped) {
  for (int64_t n = 0; n < count; n++)
    if (strchr(dropped, kinds[n]) != nullptr) md_Tensor(values[n].tensor).reset();
}

// An input of the host as an input of the call.
static bool md_take(md_Call& md, const md_tensor* given, int64_t count, const char* kinds, md_Value* values) {
  for (int64_t n = 0; n < count; n++) {
    const md_tensor& one = given[n];
    bool is_right = true;
    switch (kinds[n]) {
      case 't':
      case 'o': is_right = md_lent(md, values[n], one); break;
      case 'i': is_right = one.dtype == md_int64 && one.ndim == 0; break;
      case 'd': is_right = one.dtype == md_float64 && one.ndim == 0; break;
      case 'b': is_right = one.dtype == md_bool && one.ndim == 0; break;
    }
    if (!is_right) {
      md_release(values, n, kinds, "to");
      return md.kind == nullptr ? md_fail(md, "TypeError", "input %lld is a number of another type", (long long)n) : false;
    }
    if (kinds[n] == 'i') values[n].integer = *static_cast<const int64_t*>(one.data);
    if (kinds[n] == 'd') values[n].real = *static_cast<const double*>(one.data);
    if (kinds[n] == 'b') values[n].integer = *static_cast<const bool*>(one.data);
  }
  return true;
}

// What an output owns: its tensor, its layout, and its number if it is one.
struct md_Given {
  md_Tensor tensor;
  md_Value number;
};

static void md_hand_over(md_Value value, char kind, md_tensor& made) {
  md_Given* given = new (malloc(sizeof(md_Given))) md_Given{md_Tensor(kind == 't' ? value.tensor : nullptr), value};
  made = {&given->number, md_int64, 0, nullptr, nullptr, given};
  if (kind == 't') {
    const md_Tensor& tensor = given->tensor;
    made = {tensor.data<void>(), tensor.dtype(), (int32_t)tensor.ndim(), tensor.sizes(), tensor.strides(), given};
  } else if (kind == 'd') {
    made.dtype = md_float64;
  } else if (kind == 'b') {
    made.dtype = md_bool;
  } else if (kind == 'n') {
    made.data = nullptr;
  }
}

MD_EXPORT md_graph* md_open(const md_tensor* constants, int64_t n_constants) {
  if (n_constants != md_compiled.n_constants) return nullptr;
  md_graph* graph = static_cast<md_graph*>(calloc(1, sizeof(md_graph)));
  graph->constants = static_cast<md_Tensor*>(calloc(n_constants + 1, sizeof(md_Tensor)));
  for (; graph->n_constants < n_constants; graph->n_constants++) {
    md_Call md;
    md_Value value;
    if (!md_lent(md, value, constants[graph->n_constants])) {
      md_close(graph);
      return nullptr;
    }
    graph->constants[graph->n_constants] = md_Tensor(value.tensor);
  }
  return graph;
}

MD_EXPORT void md_close(md_graph* graph) {
  for (int64_t n = 0; n < graph->n_constants; n++) graph->constants[n].reset();
  free(graph->constants);
  if (graph->mapped != nullptr) munmap(graph->mapped, graph->mapped_bytes);
  if (graph->sent != nullptr) md_drop(graph->sent);
  free(graph);
}

MD_EXPORT int md_run(md_graph* graph, const md_tensor* inputs, int64_t n_inputs, md_tensor* outputs, int64_t n_outputs, char* error,
                     int64_t error_size) {
  const int64_t takes = strlen(md_compiled.takes), gives = strlen(md_compiled.gives);
  md_Call md;
  md.constants = graph->constants;
  md.threads = md_threads();
  md_Value given[takes + 1], made[gives + 1];
  bool is_done = n_inputs == takes && n_outputs == gives;
  if (!is_done)
    md_fail(md, "TypeError", "%s takes %lld inputs and gives %lld outputs, not %lld and %lld", md_compiled.name, (long long)takes,
            (long long)gives, (long long)n_inputs, (long long)n_outputs);
  if (is_done) is_done = md_expected == nullptr || md_expected(md, inputs);
  if (is_done) is_done = md_take(md, inputs, takes, md_compiled.takes, given);
  if (is_done) {
    is_done = md_compiled.run(md, given, made);
    md_release(given, takes, md_compiled.takes, "t");
  }
  if (!is_done) {
    if (error_size > 0) snprintf(error, error_size, "%s: %s", md.kind, md.message != nullptr ? md.message : "");
    return 1;
  }
  for (int64_t n = 0; n < gives; n++) md_hand_over(made[n], md_compiled.gives[n], outputs[n]);
  return 0;
}

MD_EXPORT void md_free(md_tensor* outputs, int64_t n_outputs) {
  for (int64_t n = 0; n < n_outputs; n++) {
    md_Given* given = static_cast<md_Given*>(outputs[n].owner);
    given->tensor.reset();
    free(given);
  }
}

// The ATen nodes that errors may name, separated by blanks.
#define MD_NODES(text) MD_EXPORT const char md_nodes[] = text;

// The unit's graph; see md_Graph.
#define MD_GRAPH(name, run, takes, gives, constants, n_constants) \
  MD_EXPORT const md_Graph md_compiled = {name, run, takes, gives, constants, n_constants};
