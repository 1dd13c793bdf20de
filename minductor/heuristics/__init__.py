"""Learned choices: which option of a choice is the fastest one, as measurements on a machine taught it.

The road of a choice, by `minductor heuristics` (`heuristics_command.py`):

- `collect` measures kernels by each option of a choice, and writes a line for each kernel: `samples.py`, with the
  numbers of `features.py`. The choices are the rows of `bench/clients.py`:
  `rows`, the recipe of a kernel that reduces rows, is asked in `passes/schedule/schedule.py`;
  `cut`, whether a reduction is cut in parts, in `passes/split/split.py`;
  `products`, whether the library computes a matrix product, in `frontend/rules/matmul.py`;
  `padding`, whether a product of odd sizes is padded, in `frontend/rewrites/pad_products.py`;
- `learn` grows a regression tree over the logarithms of times (`tree.py`), finds its size by cross-validation and a
  confidence below which it says "unsure", and judges it on kernels that were held out (`learn.py`);
- then it writes a Python function with its METADATA (`generate.py`) into `generated/`, which is committed;
- `show` prints what is learned.

When a program is compiled, `learned.py: learned` asks the function, before prices or a rule decide. It uses no files,
no clock and no measurement: a choice is the same for equal features. `metadata.py` says where a function may be asked:
on the device and with the software that it was learned with, or for a nominal target such as `cpu`; and within the
range of what was measured. Kernels that have options which were not measured are of another kind, and are not asked
about. Where a function may not be asked, or is unsure, the caller decides as it would without, and a note says why. An
option that the user forces and the option `deterministic` are stronger.
"""
