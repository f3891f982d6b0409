"""A spec's module, imported, is that spec: for chains that are unusual, and for random ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusegen.importing.checks.check import reference_class
from fusegen.importing.module import from_module
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from tests.emulate.other_chains import HAND_PICKED, RandomChain
from tests.importing.modules import plan

_COMMUTATIVE = ("add", "mul", "minimum", "maximum")
CHAINS = HAND_PICKED | {f"random_{seed}": RandomChain(seed).chain() for seed in range(6)}


def reimported(made: Plan) -> Plan:
    """The spec of the plan's module, with its argument names."""
    spec = made.spec
    arguments: dict[str, Any] = {}
    for name, argument in spec.arguments.items():
        if argument.type == "dim":
            arguments[name] = spec.dims[name]
        elif argument.type == "shape":
            arguments[name] = tuple(spec.dims.get(size, size) for size in argument.is_)
        else:
            arguments[name] = argument.typical if argument.type == "int" else argument.default
    torch.manual_seed(0)
    with reference_class(module_of(made)) as cls:
        module = cls(**arguments)
        shapes = [[spec.dims.get(size, size) for size in shape] for shape in spec.inputs.values()]
        inputs = [torch.rand(shape) + 0.1 for shape in shapes]
        return plan(from_module(module, inputs, arguments=arguments, name=spec.name))


def alike(made: Plan) -> list[dict[str, Any]]:
    """The steps with saved values numbered, and without a swap that changes nothing."""
    numbers: dict[str, int] = {}
    found = []
    for step in made.spec.chain:
        data = step.model_dump()
        data["op"] = "silu" if data["op"] == "swish" else data["op"]
        if data["op"] in _COMMUTATIVE:
            data["swap"] = False
        for key in ("value", "save"):
            if data.get(key) is not None:
                data[key] = numbers.setdefault(data[key], len(numbers))
        found.append(data)
    return found


@pytest.mark.parametrize("name", CHAINS)
def test_a_specs_module_is_imported_as_that_spec(name: str) -> None:
    written = plan(CHAINS[name].spec(name))
    found = reimported(written)
    assert alike(found) == alike(written)
    used = {each for each in written.spec.arguments if each in found.spec.arguments or each not in written.spec.dims}
    assert list(found.spec.arguments) == [each for each in written.spec.arguments if each in used]
    given = list(written.spec.arguments)
    for key in used:
        # One behind an argument that is nothing in the chain has another position.
        is_moved = not set(given[: given.index(key)]) <= used
        assert found.spec.arguments[key] == written.spec.arguments[key].model_copy(update={"keyword": is_moved})
    # And once more it is the same spec, to the letter: it is made of the same module, or that is imported too.
    unlike = {"about_", "dtypes"}
    if found.spec.model_dump(exclude=unlike) != written.spec.model_dump(exclude=unlike):
        assert reimported(found).spec == found.spec
