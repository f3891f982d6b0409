"""What a spec has around its chain: sizes, names, inputs; and its text."""
