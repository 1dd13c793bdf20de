"""Reads a torch.export.ExportedProgram as the one ATen graph that `capture` reads.

- `exported_program.py`: exports a function if needed, and turns the program into a graph with its weights in it.
- `tied_weights.py`: gives a weight with several names one name, without which torch decomposes no such program.
"""
