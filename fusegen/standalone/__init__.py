"""One file for one spec: `fusegen export`."""
