"""Tests repeated under faults of the compiler, which they must notice, and under changes that must not matter.

The files in reading order:

    mutants.py       runs one function of the compiler with a piece of its text replaced
    trials.py        runs a test again: under mutants, on other numbers of threads, with other hash seeds
    kill_matrix.py   what became of each mutant, and the table that `--mutants` prints

Data: the markers `must_fail_under` and `deterministic` and the option `--mutants` name the trials. A Trial notes which
kinds of checks failed, and digests of the generated texts and of the results. The report of the test gets the outcome.
Laws: a trial writes no golden and compiles into a store of its own. A mutant counts as killed only if its code ran, it
changed a text, a plan, a result or a store hit, and a check failed.
"""
