"""Changes of kernels and programs that several stages make: joining, pruning, merging axes."""
