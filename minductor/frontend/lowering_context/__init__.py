"""What the rules of operators write kernels with."""
