"""Compares what the specs render with what is committed, and says what to do about it."""
