"""The ops of a region, in the extension of this file."""

import torch


class Op:
    """A function of the extension, and what it takes and returns."""

    def __init__(self, function, name, schema):
        self.function = function
        self._schema = torch._C.parse_schema(f"{name}{schema}") if schema else None

    def __call__(self, *arguments):
        return self.function(*arguments)


class Package:
    """kernels: what has the functions. schemas: of some, arguments and results. dtypes: of the roles
    of tensors, by dtype mode."""

    built = True

    def __init__(self, name, kernels, schemas, roles, dtypes):
        self.name = name
        self.device = _kernels.device  # noqa: F821
        self._kernels, self._schemas = kernels, schemas
        self.dtypes = [
            dict(zip(roles, row, strict=True), accumulator=torch.float32) for row in dtypes
        ]
        self._modes = {}
        for mode, row in enumerate(self.dtypes):
            for each in row.items():
                self._modes.setdefault(each, mode)

    def find_op(self, function):
        return Op(getattr(self._kernels, function), function, self._schemas.get(function))

    def mode_of(self, role, dtype):
        """The first dtype mode in which tensors of a role have a dtype, if there is one."""
        return self._modes.get((role, dtype))

    def no_second_derivative(self):
        return f"{self.name} has no second derivative: use create_graph=False"
