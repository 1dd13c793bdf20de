"""The oracle: runs a function compiled, in eager and in float64, and compares the three.

The files in reading order:

    reference_runs.py   copies a call with its storages, and runs it in eager or in float64
    exact_sums.py       float64 sums without rounding error, for results that are float64 themselves
    tolerances.py       the one table of how far a result may be from the truth
    accuracy.py         check_accuracy: compares a result with eager and with float64
    run.py              Run: the results and texts that a test is given
    compiled.py         Compile, the value of the fixture `compiled`: it compiles, runs, compares and returns a Run
    counts.py           the marker `counts`: what is wrong with the counts of a run
    memory.py           the marker and the fixture `memory`: the life of each storage
    repro_script.py     the script that a failing test leaves, which compiles the same again without pytest
    first_moved.py      asks the compiler at which stage the numbers of a failing test moved

Data: a function with its arguments goes in; the adapter compiles it; a Run comes out, or WrongResult is raised.
Laws: the arguments of the user are never changed. A result may be no further from the float64 truth than a small
multiple of eager's own error. Integers, bools, dtypes, shapes, strides, aliases and mutations are exactly eager's.
"""
