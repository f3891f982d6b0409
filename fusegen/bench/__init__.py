"""Speed: a fused module beside what else a user could run, timed in one process, as a table, a CSV and plots."""
