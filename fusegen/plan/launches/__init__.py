"""How kernels may be launched: their kinds, launch shapes, devices, and what was measured."""
