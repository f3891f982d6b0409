"""Double precision: a forward and backward pass, and the terms that each gradient is a sum of."""
