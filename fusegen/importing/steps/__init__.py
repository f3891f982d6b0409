"""Values as the steps of a chain."""
