"""Mistakes made on purpose in copies of emitted kernels: the table, one file a kind of mistake."""
