"""With the condition in words."""

from .stand_in import because


def refused(condition, text):
    return because(text) if condition else None
