"""Where a chain is cut into regions, and the spec of each region."""
