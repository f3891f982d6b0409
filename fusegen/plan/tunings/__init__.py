"""The tuning beside a spec: what it may choose, and its file."""
