"""The program: bodies, kernels and schedules as data, with their text, their builder and their verifier."""
