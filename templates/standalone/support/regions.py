"""The base of modules of several regions: a call runs the op of each region in turn."""

from ...support.dimensions import check_inputs
from .fused_module import FusedModule


class RegionPackages:
    """What is known of all regions together."""

    built = True

    def __init__(self, name, *regions):
        self.name, self.packages = name, [each._fusegen_package for each in regions]
        self.device = self.packages[0].device


class FusedRegions(FusedModule):
    """A chain of operators as the fused kernels of several regions."""

    def _fusegen_run(self, *inputs):
        check_inputs(self._fusegen_package.name, self._fusegen_dimensions, inputs)
        return self._fusegen_run_regions(inputs)

    def _fusegen_run_regions(self, inputs):
        return self._fusegen_chain(self._fusegen_run_region, *inputs)

    def _fusegen_run_region(self, part, *inputs):
        return self._fusegen_run_part(inputs, part)
