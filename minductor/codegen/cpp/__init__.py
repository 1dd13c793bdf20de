"""Kernels in C++ for CPUs.

The input is a Plan with a schedule for each kernel. The output is a few translation units, each with up to 32 kernels
and the functions that they call. `minductor/runtime/build/toolchain.py` compiles the units.

Read the files in this order:

- `cpp_kernels.py`: the entry point `cpp`. It collects kernels into units and writes each function's head.
- `cpp_nest.py`: the loops of one kernel, as its schedule says; `cpp_nest_values.py`: where its values stand meanwhile.
- `cpp_values.py`: the statements for the operations of a loop's body.
- `cpp_checks.py`: index checks and assertions, whose first failure a kernel returns as its status.
- `cpp_arrays.py`: the arrays on the stack that a schedule asks for.
- `cpp_upwards.py`: how an accumulator takes in elements in ascending order.
- `cpp_strips.py`, `cpp_stored.py`: conversions of 16-bit floats, in strips or not at all.
- `cpp_over_strips.py`: calls that compute one function for a strip of elements.
- `cpp_transpose.py`, `cpp_copies.py`: copies of transposed blocks, and of rows.
- `cpp_text.py`: literals, index expressions and indentation.
- `cpp_math.py`: the sections of the headers that a kernel needs.
- `cpp_math.h`, `cpp_double.h`, `cpp_special.h`, `cpp_convert.h`, `cpp_loops.h`, `cpp_transpose.h`: functions that g++
  turns into vector instructions, since calls of libm would end the vector loop.

Laws:

- A kernel is `int64_t name(pointers, sizes, threads)`. It returns 0, or the number of the first check that failed.
- The text depends on shapes and dtypes only. The processor decides by compiler flags, not by the text.
- Float32 and float64 results are those of eager within the test's tolerance; integers wrap around as in eager.
- `Kernel.access` (which loads are blocks, strided or gathers) is not read here: g++ sees that by itself. The Triton
  generator, the verifier and the report read it.
"""
