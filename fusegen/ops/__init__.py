"""The catalogue of steps: the fields of each, its nodes in the graph and its form in PyTorch."""
