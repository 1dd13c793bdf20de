"""A pytest plugin for tests of compilers: devices, numeric oracle, counts and golden kernels.

Takes nothing, gives the names that tests import; the fixtures come with the plugin itself.
"""

from pytest_plugin.limits import at_least, at_most
from pytest_plugin.xfail import Xfail as xfail
from pytest_plugin.xfail import skip_on

__all__ = ["at_least", "at_most", "skip_on", "xfail"]
