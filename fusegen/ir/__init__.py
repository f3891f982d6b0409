"""The graph of a chain, its gradient and its simplification. Nothing here knows CUDA or torch."""
