"""The public functions: compile_only, explain, to_fx, export."""
