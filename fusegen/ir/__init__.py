"""The graph, its functions, its gradient and its rewriting. Nothing here knows of specs, CUDA or torch."""
