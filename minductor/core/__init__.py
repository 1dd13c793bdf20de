"""Floor 0: index algebra, dtypes, names and errors.

Takes and gives plain values; refuses to import anything of ours above it.
"""
