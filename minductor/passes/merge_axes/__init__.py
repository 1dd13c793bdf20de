"""The stage `merge_axes`: fewer and longer axes for each kernel.

Takes a program of kernels without schedules; gives it with kernels whose axes are merged where all indices run through
them as one, so that `schedule` makes one loop over 4096 elements and not two over 64 x 64. `merge_axes.py` is the
stage. `rewriting/kernel_axes.py` merges the axes of one kernel; `loop_order` and `schedule` ask it too.

Laws: values do not change, and kernels keep their names. No thresholds, no options and no notes.
"""
