"""Imports generated modules by their place in this package: from any working directory, installed or not."""

from mypackage.generated.linear_gelu import LinearGelu

__all__ = ["LinearGelu"]
