"""One run of a compiler under test, held against eager and float64."""
