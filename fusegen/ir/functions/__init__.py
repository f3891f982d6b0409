"""The element-wise functions of the graph. The entry of each says all that is known of it; `catalogue` has them all."""
