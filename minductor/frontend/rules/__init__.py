"""How each ATen operator becomes kernels: a file per family, each with a literal table from operator to rule."""
