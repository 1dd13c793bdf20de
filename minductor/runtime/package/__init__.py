"""Packages that `minductor.export` wrote: reading and calling them."""
