"""Sizes that a spec allows, and the bytes that tensors and kernels have at them."""
