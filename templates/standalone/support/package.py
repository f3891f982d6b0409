"""The ops of a region, in the extension of this file."""

import torch

from ...support.dtype_modes import modes_of


class Op:
    """A function of the extension, and what it takes and returns."""

    def __init__(self, function, name, schema):
        self.function = function
        self._schema = torch._C.parse_schema(f"{name}{schema}") if schema else None

    def __call__(self, *arguments):
        return self.function(*arguments)


class Package:
    """kernels: what has the functions, and of some in `schemas` the arguments and results. dtypes:
    of the roles of tensors, by dtype mode. key: the roles that tell the mode of a call. plain,
    autocast: the modes of calls without and under autocast."""

    built = True

    def __init__(self, name, kernels, roles, dtypes, key, plain, autocast):
        self.name = name
        self.device = _kernels.device  # noqa: F821
        self._kernels = kernels
        self.dtypes = [
            dict(zip(roles, row, strict=True), accumulator=torch.float32) for row in dtypes
        ]
        self.plain_modes = modes_of(self.dtypes, key, plain)
        self.autocast_modes = modes_of(self.dtypes, key, autocast)
        self._modes = {}
        for mode, row in enumerate(self.dtypes):
            for each in row.items():
                self._modes.setdefault(each, mode)

    def find_op(self, function):
        return Op(getattr(self._kernels, function), function, self._kernels.schemas.get(function))

    def mode_of(self, role, dtype):
        """The first dtype mode in which tensors of a role have a dtype, if there is one."""
        return self._modes.get((role, dtype))

    def no_second_derivative(self):
        return f"{self.name} has no second derivative: use create_graph=False"
