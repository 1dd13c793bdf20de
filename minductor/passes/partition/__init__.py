"""The stage `partition`: finds the calls that a CUDA graph may capture."""
