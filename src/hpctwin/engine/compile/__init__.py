"""How Python becomes compiled kernels, and where compiled code is kept."""
