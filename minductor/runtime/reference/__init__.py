"""A slow evaluator of programs, which tests and `explain` compare generated code with.

The input is a Program at any stage, its inputs and its constants. The output is the program's outputs.

- `reference.py`: evaluates each operation on whole tensors, by calls of torch.
- `nest_reference.py`: evaluates kernels by their loop nests, iteration by iteration, and refuses a wrong nest. What the
  current iterations know is in `nest_values.py`, accumulators are in `nest_sums.py`, and the order of loads and stores
  is watched in `nest_memory.py`.
- `gpu_operators_on_cpu.py`: operators that torch has for GPUs only, computed on the CPU.

It shares no code with `codegen/`, so that a mistake in one of the two shows.
"""
