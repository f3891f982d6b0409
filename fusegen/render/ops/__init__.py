"""The torch ops of a package: arguments, checks, results, and bindings.cpp."""
