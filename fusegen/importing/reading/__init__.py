"""A trace as values: operators by family, layouts, and ops that are spelled out."""
