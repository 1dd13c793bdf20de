"""The stage `order`: in which order the nodes run, so that the peak of live memory is low.

Takes a program after fusion and gives it with its nodes in another order. `order.py` makes five orders, compares their
peaks (`ir/plan/storage.py`, `Usage.peak`) with that of the old order, and takes the lowest. It runs before tiling, so
the peak counts storages without the reuse in place that `memory` finds later.

Laws: every dependency is kept (`analysis/dependencies.py`), effects and an order that the user asked for included. It
has no thresholds and no options, writes no notes, and does not depend on the target.
"""
