"""The chain as a module whose kernels run here, through the emulator, and as one without kernels for the CPU."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate.package import emulate_package
from tests.emulate.building import module_class, write
from tests.emulate.stand_in.chain import CHANNELS, ROWS, SPEC, WIDTH


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("stand_in")


@pytest.fixture(scope="session")
def package(root, emulation_cache):
    plan = write("stands_in", SPEC, root)
    return emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)


@pytest.fixture(scope="session")
def elsewhere_class(root, package):
    return module_class(write("stands_in", SPEC, root), root)


@pytest.fixture(params=["kernels", "elsewhere"])
def anywhere(request, package, elsewhere_class):
    """A module whose kernels can run here, and one without kernels for the CPU."""
    torch.manual_seed(3)
    return (package.StandsIn if request.param == "kernels" else elsewhere_class)(WIDTH, CHANNELS)


@pytest.fixture
def module(package):
    torch.manual_seed(3)
    return package.StandsIn(WIDTH, CHANNELS)


@pytest.fixture
def inputs():
    torch.manual_seed(4)
    return [torch.randn(ROWS, WIDTH, requires_grad=True), torch.randn(ROWS, CHANNELS, requires_grad=True)]
