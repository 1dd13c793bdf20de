"""What every test run of the project shares: the hypothesis profile, and pytest's own tests of plugins."""

from hypothesis import settings

# The same examples in every run and no deadline: a red test is red for everybody, and on a busy machine too.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# tests/plugin runs the plugin in test suites of its own
pytest_plugins = ["pytester"]
