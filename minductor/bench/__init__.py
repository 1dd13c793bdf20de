"""`minductor bench`: measures eager, TorchInductor and minductor side by side. `minductor demo` is here too.

The input is a command line. The output is tables, JSON and a picture; the exit code is 1 if a claim fails.

- `harness.py`: the command. It runs each measurement in a process of its own.
- `measure.py`: one measurement: running time, accuracy, or the first call.
- `cases.py`: a case by its name; `micro.py` has small functions, `models.py` five models, `inference_models.py` twelve.
- `frozen_backends.py`: TorchInductor with freezing, and OpenVINO.
- `bench_results.py`, `bootstrap.py`: the measurements as data; medians and intervals of ratios.
- `claims.py`, `bench_tables.py`, `plot.py`: the bounds that must hold, and how results are shown.
- `counts.py`: `--counts`: kernels, bytes and peak memory without a clock. `peer.py` observes TorchInductor for it, and
  `allocations.py` compares planned with measured peaks.
- `demo.py`: trains a small transformer in eager and compiled, and compares the losses.
"""
