"""The graph, its functions and reductions, its gradient and its rewriting. Nothing here knows of specs, CUDA or torch."""
