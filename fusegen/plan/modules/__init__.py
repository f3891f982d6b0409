"""The plan of a module: its regions, variants and programs, and what is refused."""
