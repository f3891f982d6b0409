"""The generator's version: a literal, not installed metadata, so that it is the same in a checkout and in a wheel."""

__version__ = "0.2.0"
