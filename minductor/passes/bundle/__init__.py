"""The stage `bundle`: which kernels share one launch, and how many programs a launch of few elements has.

Takes a tiled program and gives one with fewer launches, in three steps:

- `bundle.py`: kernels that do the same to different tensors are one kernel, with programs for each of them;
- `finish.py`: on a GPU, the program of a kernel that ends last does the work of a small kernel which reads its results.
  So a reduction that `split` cut is one launch again, where the work is so short that a launch counts;
- `share_out.py`: on a GPU, a kernel of few elements that is alone gets smaller tiles, for more multiprocessors.

`one_kernel.py` puts the kernels together; `ir/program/bundled.py` takes such a kernel apart again, for the reference.

Laws: parts share no axis. No part depends on another one, so the parts may run in any order; but those that finish a
kernel (`Schedule.finishing`) come last, and read what the others have stored. Bits do not change, and do not depend on
which program is the last. The prices are those of `cost/launch_seconds.py`; the limits at the top of both files are
facts that are no seconds of the call. `options.fuse` switches the stage off. The user sees `MergedKernel` notes, and a
`FusionRefusal` for a kernel that stays apart from the latest bundle of the same operators, or from the kernel whose
results it reads, with the seconds of both ways where they decided.
"""
