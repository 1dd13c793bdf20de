"""Index expressions: integer expressions over sizes and loop indices, and the relations between them.

An expression is an immutable node. A constructor brings it into canonical form, and equal nodes are one object, so `==`
usually proves that two expressions are equal for all values. `expr.py` offers all names; import from there.

In reading order:

- `intervals.py`: interval arithmetic on plain ints.
- `interning.py`: one object for each value.
- `algebra.py`: the nodes; sums, products, minimum and maximum.
- `division.py`: `//` and `%`.
- `relations.py`: comparisons, and, or, not.
- `expr.py`: the public names; substitution, evaluation, expansion.
- `expr_parser.py`: the parser of printed expressions.
- `bounds.py`: bounds and proofs under the extents of axes.
- `hints.py`: estimates of sizes that only the call knows; they prove nothing.
- `rewrite.py`: simplification under the extents of axes, and the coordinates of a flat offset.

Laws: a rule is applied only if it holds for every value that the symbols' ranges allow. `parse_expr(str(e)) == e`. A
division says nothing for the denominator zero. "Not proved" is never a refutation.
"""
