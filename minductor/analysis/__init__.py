"""Questions that several stages ask of kernels and programs: domains, strides, dependencies, memory blocks."""
