"""Generated text held against stored files, and their review."""
