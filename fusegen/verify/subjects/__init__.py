"""What is verified: a package and its original, the tail of a chain, sizes that fit the memory."""
