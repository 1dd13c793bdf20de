"""On which devices tests run, and which tests."""
