"""Wrappers: the text that runs one call of a graph. It allocates, launches kernels, calls operators and frees.

The input is a Plan: the lines of the wrapper in order. The output is one text, in the language that the option
`wrapper` names:

- `wrapper_python.py`: a Python module with `call(args)`. Every plan has this form.
- `wrapper_cpp.py`: one C++ function, which costs less time per call, for CPUs and for GPUs of NVIDIA. It refuses
  (NotNative) plans that need Python.
- `wrapper_fx.py`: a torch.fx graph as JSON (`ir/artefact/fx_graph.py`), for other tools to read and change.

Their helpers:

- `wrapper_memory_checks.py`: statements that report each allocation and free, for the option `verify_memory`.
- `wrapper_nan_asserts.py`: what is tested around a launch, for the option `nan_asserts`; in all three languages.
- `wrapper_cpp_partitions.py`: the functions of partitions in C++, under `cudagraphs`.
- `wrapper_cpp_calls.py`: a call of a torch operator from C++; `operator_schema.py` parses the operator's schema.
- `wrapper_cpp_numbers.py`, `wrapper_fx_numbers.py`: sizes and conditions as C++ expressions, and as nodes of a graph.
- `wrapper_cpp_package.py`: what an exported package needs beside its C++ wrapper.

Laws:

- A wrapper does what the plan's lines say, in their order. It makes no decision about memory.
- Each launch and operator call stands below a comment with its handle and the ATen nodes that it comes from.
- `call(args)` empties the list `args`, so that inputs are freed after their last use.
- The names that wrappers import are in `runtime/launch/`.
"""
