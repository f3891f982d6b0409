"""A layer of this file is a plain one."""


def misfit_convolution(name, module, weight):
    return None
