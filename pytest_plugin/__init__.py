"""A pytest plugin for tests of compilers: devices, a numeric check against eager and float64, counts, golden kernels.

A test imports `at_least`, `at_most`, `skip_on` and `xfail` from here; the fixtures and markers are there once the
plugin is installed. docs/testing.md is the guide. The files, lowest layer first; a file imports only from layers below:

    vocabulary, limits, xfail, stash      words, limits, known failures, and the keys of pytest's own stash
    devices/                              which devices a test runs on
    adapters/                             what the plugin asks of a compiler, and the adapters of three compilers
    oracle/                               one run of a compiled function, compared with eager and with float64
    goldens/                              generated text compared with stored files, and the review of differences
    faults/                               tests repeated under faults of the compiler, and under harmless changes
    random_programs/, strategies          random programs, and their hypothesis strategy
    summary/                              what one test proved, and the summary of all tests
    markers                               the rules that markers are checked by
    session                               the settings of one pytest process, kept in pytest's stash
    fixtures, short_names                 the fixtures
    plugin                                pytest's hooks

`plugin.py`, `fixtures.py` and the lowest layer load neither torch nor a compiler: each pytest run loads them.
"""

from pytest_plugin.limits import at_least, at_most
from pytest_plugin.xfail import Xfail as xfail
from pytest_plugin.xfail import skip_on

__all__ = ["at_least", "at_most", "skip_on", "xfail"]
