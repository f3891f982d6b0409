"""Which kernels a chain becomes: what shares a pass over memory, what is saved and recomputed, launch shapes,
reasons."""
