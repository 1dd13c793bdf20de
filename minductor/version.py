"""The version of minductor. Takes nothing, gives `__version__`, which pyproject.toml repeats."""

__version__ = "0.1.0"
