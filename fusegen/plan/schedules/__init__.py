"""From a program to kernels: alternatives, their cost, and the rewrites that make them cheaper."""
