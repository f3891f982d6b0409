"""The operator catalogue: what a chain may contain, how it is computed, differentiated and written in PyTorch."""
