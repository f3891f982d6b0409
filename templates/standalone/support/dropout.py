"""A dropout of samples."""

from .layers import Dropout


class DropPath(Dropout):
    """What a dropout has, of samples."""
