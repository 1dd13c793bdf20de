"""The stage `memory`: decides the life of every storage and writes the plan."""
