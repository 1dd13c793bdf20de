"""A slow evaluator of programs, which tests and `explain` compare generated code with.

The input is a Program at any stage, its inputs and its constants. The output is the program's outputs.

- `reference.py`: evaluates each operation on whole tensors, by calls of torch.
- `gpu_operators_on_cpu.py`: operators that torch has for GPUs only, computed on the CPU.

It shares no code with `codegen/`, so that a mistake in one of the two shows.
"""
