"""Whether an error is small enough, and what a finding is."""
