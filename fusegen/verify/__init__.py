"""Numerics: a fused module against the original module and against double precision."""
