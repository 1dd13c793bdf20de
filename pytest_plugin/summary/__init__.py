"""What one test proved, and what the summary of a run says of all tests."""
