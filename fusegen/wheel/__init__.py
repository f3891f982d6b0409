"""Wheels of generated packages with compiled libraries, for every torch and Python that they serve."""
