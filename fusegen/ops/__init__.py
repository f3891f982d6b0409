"""The operator catalogue: the steps of a chain, each with its fields, its nodes in the graph and its form in PyTorch."""
