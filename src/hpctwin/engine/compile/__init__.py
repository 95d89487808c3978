"""Compilation of Python functions to kernels, and the cache of compiled code."""
