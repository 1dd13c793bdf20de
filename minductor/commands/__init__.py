"""The commands `cache`, `doctor` and `unpack` of `python -m minductor`. `minductor/__main__.py` lists all commands.

- `cache_command.py`: `minductor cache`: shows, empties or takes over a cache folder.
- `doctor.py`: `minductor doctor`: what this machine has, what it misses, and what to do about it.
- `unpack.py`: `minductor unpack`: the parts of an exported package as files.
"""
