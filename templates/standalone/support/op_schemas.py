"""As traced.py."""


def describe(op, fake, flops):
    """Nobody asks."""
