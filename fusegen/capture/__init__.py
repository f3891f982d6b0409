"""Chains of operators in the graph of a whole model, and what stands there in their place."""
