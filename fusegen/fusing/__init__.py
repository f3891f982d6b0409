"""Chains inside a larger model: found, written as specs, built, and run in place of the modules that they are.

Needs torch. Modules, parameters and buffers stay where they are; a forward takes the place of another.
"""
