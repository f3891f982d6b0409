"""The arithmetic of fp32_split, bit by bit, on the CPU: what its kernels must return, in NumPy."""
