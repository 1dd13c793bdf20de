"""Programs: a graph as kernels, calls and numbers, with a printer, a parser, a builder and a verifier.

`nodes.py` opens with the grammar of the printed text and the laws; read it first. Then:

- `ops.py`: the pointwise operators and named reductions that a body may use.
- `build.py`: `Builder`, the only way to make a body; equal ops become one op.
- `loops.py`: the loop nest of a kernel, which stage `schedule` adds.
- `aligned_rows.py`: rows that a loop holds in an aligned bulk and edges.
- `memory_access.py`: how a load or store touches memory, which stage `access` adds.
- `choices.py`, `variants.py`: decisions and whole kernels that the tuner may exchange.
- `bundled.py`: splits a bundle into its kernels. `needed.py`: the ops that some ops of a body need.
- `printer.py`, `parser.py`: `parse_program(print_program(p)) == p`.
- `verify_program.py`: the rules of programs.
- `signature.py`: the parameters, errors and digest of a kernel.
- `dots.py`: finds the matrix products of a kernel.
- `value_bounds.py`, `exact_in_dtype.py`, `below_maximum.py`: facts about one value of a body.
- `size_sources.py`: the sizes of tensors that give the values of symbols.
"""
