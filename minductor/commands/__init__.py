"""Commands of `python -m minductor` that concern this machine and its files.

`minductor/__main__.py` lists all commands. The input of each `main` is the arguments of its command. The output is
lines on stdout and an exit code.

- `cache_command.py`: `cache` shows and empties the cache of compiled graphs.
- `doctor.py`: `doctor` checks whether kernels can be compiled on this machine.
- `heuristics_command.py`: `heuristics` measures the options of a choice, learns from that, and shows what is learned.
- `unpack.py`: `unpack` writes the files of an exported package into a folder.
"""
