"""What a program of a variant is: its tensors, dtypes, phases and passes."""
