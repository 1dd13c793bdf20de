"""From the files of an artefact to the function that Dynamo calls.

The input is an Entry of the store and the tensors and objects of this process that the graph refers to. The output is
`call(args)`, which takes a list of inputs, empties it, and returns the outputs.

By the language of the wrapper:

- `launch.py`: a wrapper in Python; also the functions that wrappers import.
- `launch_cpp_wrapper.py`: a wrapper in C++, bound as a built-in function; its headers are in `include/`.
  `cuda_cpp_wrapper.py` connects one for a GPU with torch, the driver and the kernels.
- `fx.py`: a torch.fx graph as a GraphModule. `fx_triton.py` adds the nodes that launch Triton kernels, and
  `fx_launcher.py` has the type that both implement.

By the kind of kernel:

- `load.py`: kernels of a shared object, as built-in functions.
- `gpu.py`: kernels for NVIDIA GPUs: compiles, stores and loads binaries. `cuda.py` and `cuda_launch.h` call the driver;
  wrappers in C++ share `include/minductor_launch.h` with them. `counters.py`: what kernels count their programs with.
- `interpret.py`: Triton kernels on CPU tensors, in Triton's interpreter.

Helpers of wrappers:

- `control_flow.py`: `cond`, `while_loop` and the other operators that call graphs.
- `result_checks.py`: results of operators that torch does not vouch for.
- `memory_plan_checks.py`: compares a call's allocations and frees with the plan (option `verify_memory`).
- `profiler_ranges.py`: names launches and operators for profilers.
- `nan_asserts.py`: finds the kernel that makes NaN or infinity (option `nan_asserts`); in C++ `minductor_finite.h`.

Laws:

- A kernel takes tensors, numbers, and then a number of threads or a stream. It returns 0, or the number of the check
  that failed, for which the wrapper raises the error that eager raises.
- A launch waits for nothing: errors of GPU kernels appear at the next synchronisation. Only under `nan_asserts` a
  wrapper waits for each kernel, to test its results.
- Loading from the store imports neither Triton nor the stages of the compiler.
"""
