"""Suites of their own, in which the plugin is met with faults."""

from tests.plugin.conftest import loaded, run

__all__ = ["loaded", "run"]
