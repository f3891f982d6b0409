"""Mistakes made on purpose in copies of the kernels: the table, one file a kind of mistake."""
