"""Launch shapes measured on the GPU at hand, and the file that keeps the fastest."""
