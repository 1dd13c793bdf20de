"""The report of a compiled graph: kernels, bytes, calls of operators, and the reasons of decisions.

- `report.py`: `Report`, which is stored with the artefact and printed for users.
- `refusals.py`: answers why two kernels were not fused.
- `counted_cost.py`: counts the bytes and operations of kernels.
"""
