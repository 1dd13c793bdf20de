"""What one test proved, and what the summary of a run tells of all tests.

    evidence.py   one test: its runs of `compiled`, its goldens, and the checks of what its markers declare
    totals.py     all tests: the sums, and the lines of the summary

Data: the fixtures add runs to the Evidence of a test. Its summary, plain values, travels on the test's report to the
process with the terminal, where Totals adds it up.
"""
