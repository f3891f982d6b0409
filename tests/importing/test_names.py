"""Every public name of torch that calls the operators of a chain's op is read as that op."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn

from fusegen.importing.reading.read import Reader
from fusegen.importing.reading.values import HIDDEN, Value, Values
from fusegen.importing.traces.arguments import Arguments
from fusegen.importing.traces.trace import trace
from fusegen.ops.catalogue import STEPS
from tests.importing.names import CALLS, NO_CALLS, PARAMETERS, Call, called, names, tensors

pytestmark = pytest.mark.torch


class Calls(nn.Module):
    """What functions make of one set of arguments, each of its own copy of the first."""

    def __init__(self, functions: list[Call], args: tuple) -> None:
        super().__init__()
        self.functions, self.args = functions, args
        for name in PARAMETERS:
            self.register_parameter(name, nn.Parameter(tensors()[name].clone()))

    def forward(self, y: Tensor, z: Tensor, mask: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        y = y * self.w  # which has a number of channels
        known: dict[Any, Any] = {"y": y, "z": z, "mask": mask, "target": target, **self._parameters}
        first, *rest = (known.get(each, each) for each in self.args)
        results = [function(first.clone(), *rest) for function in self.functions]
        return tuple(each if isinstance(each, Tensor) else each[0] for each in results)


def read(functions: list[Call], args: tuple) -> list[Value]:
    """The value of each function's result, equal ones as one object."""
    module = Calls(functions, args)
    inputs = [tensors()[name] for name in ("y", "z", "mask", "target")]
    return Reader(trace(module, inputs, True), Arguments(module, inputs, None), Values()).results()


def without_draws(value: Value) -> tuple:
    """A value that is compared with another one which draws other random numbers."""
    keys = tuple(sorted((key, each) for key, each in value.keys.items() if key != HIDDEN))
    return value.op, tuple(map(id, value.operands)), keys, value.name, value.layout


@pytest.mark.parametrize("op", CALLS)
def test_every_name_of_an_op_is_read_as_it(op: str) -> None:
    for function, args in CALLS[op]:
        wanted = called(function, args)
        found = {name: each for name, each in names() if called(each, args) == wanted}
        assert found
        first, *others = read([function, *found.values()], args)
        different = [
            name for name, each in zip(found, others, strict=True) if without_draws(each) != without_draws(first)
        ]
        assert not different


def test_every_op_of_the_catalogue_is_called() -> None:
    assert {*NO_CALLS, *(op.partition(" ")[0] for op in CALLS)} == {
        op for step in STEPS if step.has_kernels for op in step.ops()
    }
