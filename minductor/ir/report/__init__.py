"""The facts that a compile reports: kernels, bytes, fallbacks, and why kernels were not fused."""
