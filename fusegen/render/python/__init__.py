"""The Python of a package: the reference chain, the regions, and the call."""
