"""Modules that `minductor heuristics learn` wrote, one for each choice and target.

`learned.py: GENERATED` lists those that are in use. Each has METADATA (`metadata.py`) and `choose(features) -> option`.
"""
