"""Checks, each of which compares a module with its original in one respect."""
