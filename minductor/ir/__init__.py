"""Floor 1: programs as data: nodes, their text, their rules, and what can be counted on them."""
