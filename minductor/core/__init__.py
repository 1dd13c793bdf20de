"""The lowest layer: index expressions, dtypes, names, errors and warnings. It imports nothing else of minductor.

- `dtypes.py`: element types and torch's type promotion.
- `expressions/`: integer expressions over sizes and loop indices.
- `names.py`: identifiers in generated code.
- `errors.py`: every error and warning that a user may see, each with a code.
- `warn.py`: issues a warning at the user's line.

`minductor.core` is public for backends (docs/backends.md).
"""
