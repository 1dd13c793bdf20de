"""Wing C: programs and plans as text: kernels in C++, wrappers in Python."""
