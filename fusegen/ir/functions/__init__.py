"""What the graph computes of elements: each function with all that is known of it, and the form of norms."""
