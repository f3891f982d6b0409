"""A program run pass by pass beside its graph, when it is planned."""
