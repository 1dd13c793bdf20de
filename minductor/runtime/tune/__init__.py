"""Chooses between ways to compute the same by measuring them at the first call.

The input is candidates (functions that do the same), the name of the default one, and the arguments of a call. The
output is one function.

- `tune.py`: `Tuner`: takes a known winner from the store, or searches among the candidates at the first call.
- `tune_clock.py`: the clocks, and the size of the cache that a measurement has to empty.
- `tune_memory.py`: runs candidates on the caller's own tensors, compares what they leave, and restores the contents.
  It is imported only when something is measured.

Laws:

- A candidate that raises, or whose results differ from the default's, cannot win.
- A candidate that launches kernels, as a variant does, is first measured by their default launches. Launches are
  searched for the winner, and for one rival whose launches may make it the winner; no others are compiled.
- A winner must take less than 97% of the default's time. Each step of the search measures the default again.
- A search ends when no step is faster, or when the seconds for a kernel or for the graph are spent: then the best
  candidate so far wins.
- After measuring, the call's tensors hold what they held before, also after an error or Ctrl-C.
- A clock that gives no positive number of seconds decides nothing: the default is kept, and nothing is recorded.
- With `deterministic=True`, no choice that affects bits is measured.
- A winner holds for sizes with the same number of bits.
"""
