"""From a YAML file to a validated spec whose every value knows its line and column."""
