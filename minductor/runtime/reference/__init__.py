"""A slow and obvious evaluator of programs, as an oracle."""
