"""Index expressions: a closed algebra of integers and the relations over it."""
