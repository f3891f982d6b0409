"""A module as a graph of ATen: the trace, sizes, constructor arguments, lines of the user's source."""
