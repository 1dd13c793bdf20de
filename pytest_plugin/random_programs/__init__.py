"""Random programs and their judge."""
