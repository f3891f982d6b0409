"""What an operator of ATen is as a step of a chain: for modules that are imported, and for graphs of whole models."""
