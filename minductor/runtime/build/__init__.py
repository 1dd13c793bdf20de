"""Tools that make machine code of generated text."""
