"""The base of modules of several regions: a call runs the op of each region in turn.

A region is a package of its own, whose class says how it is called. It is never made: its methods
read the parameters and constants of the whole module, which has attributes of the same names.
"""

import importlib
import sys
from pathlib import Path

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from .dimensions import check_inputs
from .fused_module import FusedModule, KernelUse
from .package import import_once, require_listed
from .parametrised import without_data
from .precisions import precision_name


def region(module, name, package):
    """The class of a region, from the package beside that of the whole module.

    module, name: of the package of the whole. package: that of the region.
    """
    found = _import_beside(module, name, package)
    return getattr(found, found.__all__[0])


def _import_beside(module, name, package):
    """The package under the name that it has beside the whole, where that is imported by its own;
    else beside this one, which is in the same directory."""
    if module == name or module.endswith((f".{name}", f"_{name}")):
        beside = module.removesuffix(name) + package
        if "." in beside or beside in sys.modules:
            return importlib.import_module(beside)
    return importlib.import_module(f"..{package}", __package__)


class RegionPackages:
    """What is known of the packages of a module's regions together.

    Raises ImportError where the module or a region is another text than the manifest lists: a
    region may be of another chain then.
    """

    def __init__(self, name, module, file, regions):
        self.name, self.regions = name, regions
        self.packages = [each._fusegen_package for each in regions]
        self.device = self.packages[0].device
        import_once(module, Path(file).resolve())
        for each in (Path(file), *(package.file for package in self.packages)):
            require_listed(each, self.command())

    @property
    def built(self):
        return all(package.built for package in self.packages)

    def command(self):
        return f"run `fusegen build specs/{self.name}.yaml`"

    def no_second_derivative(self):
        return self.packages[0].no_second_derivative()


class FusedRegions(FusedModule):
    """A chain of operators as the fused kernels of several regions.

    Where the kernels of a region cannot do what PyTorch's operators would do, those run in its
    place, and the others' kernels all the same: values between regions are PyTorch's. The module
    warns of each region once for each reason.
    """

    def fusegen_kernels(self, *inputs: Tensor) -> KernelUse:
        """Whether a call with these inputs would run the kernels of all regions; else the first
        reason, behind the name of its region. Computes nothing.
        """
        check_inputs(self._fusegen_package.name, self._fusegen_dimensions, inputs)
        precisions = {}
        fake = FakeTensorMode(allow_non_fake_inputs=True)

        def run(part, *values):
            operator, found = self._fusegen_choose(values, count=False, part=part)
            if operator is None:
                raise _Obstacle(f"{part._fusegen_package.name}: {found.reason}")
            if operator.split is not None:
                precisions[precision_name(found[-3])] = None
            return operator.described(found, values[0])

        with without_data(self, fake), fake, torch.no_grad():
            try:
                self._fusegen_chain(run, *(fake.from_tensor(each) for each in inputs))
            except _Obstacle as obstacle:
                return KernelUse(False, str(obstacle))
        return KernelUse(True, "", ", ".join(precisions))

    def _fusegen_chain(self, run, *inputs):
        """Calls run(region, *values) for each region in turn, and returns what forward does."""
        raise NotImplementedError

    def _fusegen_run(self, *inputs):
        if isinstance(inputs[0], fx.Proxy):
            return self._fusegen_leaf(inputs)
        check_inputs(self._fusegen_package.name, self._fusegen_dimensions, inputs)
        return self._fusegen_run_regions(inputs)

    def _fusegen_run_regions(self, inputs):
        return self._fusegen_chain(self._fusegen_run_region, *inputs)

    def _fusegen_run_region(self, part, *inputs):
        return self._fusegen_run_part(inputs, part)


class _Obstacle(Exception):
    pass
