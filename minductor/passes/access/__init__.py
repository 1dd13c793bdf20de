"""The stage `access`: how every load and store addresses memory.

Takes a program whose kernels have schedules; gives it with an `Access` (`ir/program/memory_access.py`) for each load,
store and atomic. Codegen prints what the Access says. Files in reading order:
- `access.py`: the stage. On a CPU an access is a block, strided, scalar or a gather along its vector loop. On a GPU it
  is a block with sizes and strides (`analysis/blocks.py`), a scalar or a gather;
- `block_forms.py`: which blocks Triton's block pointers and tensor descriptors can address;
- `evictions.py`: how long the cache of a GPU should keep what is loaded and stored.

Laws: each access is classified once; the class changes no value, only how it is addressed. Thresholds are the limits of
the hardware in `block_forms.py`. `options.block_access` chooses the form of blocks. The user sees a `NodeNote("access",
...)` for each block that the chosen form cannot address.
"""
