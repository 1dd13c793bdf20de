"""The commands of `python -m minductor`."""
