"""The dtypes that values between regions have under autocast, as far as the spec decides them.

What a layer has made is in autocast's 16 bits, what a norm has made in float32, whatever the module is given. Only
inputs of the module, and what is made of them alone, are in float32 in one call and in 16 bits in another.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusegen.chain.model import Chain
from fusegen.plan.programs.modes import NARROW, values_under_autocast
from fusegen.plan.regions.region import Region
from fusegen.spec.model import SpecModel

_WIDE = "float32"
# A dtype of 16 bits: which one makes no difference to where it comes in.
_SOME = "bfloat16"


class KnownDtypes:
    """Region after region, in their order. Of each value its dtype in two calls: with inputs in float32, and with
    inputs in 16 bits."""

    def __init__(self, spec: SpecModel) -> None:
        self._found: dict[str, tuple[str, str]] = dict.fromkeys(spec.inputs, (_WIDE, _SOME))

    def of(self, region: Region) -> dict[str, str]:
        """The inputs of a region that have one dtype in all calls: "float32", or NARROW for that of autocast."""
        pairs = {name: self._of(name) for name in region.inputs}
        same = {name: found[0] for name, found in pairs.items() if found[0] == found[1]}
        return {name: NARROW if dtype == _SOME else dtype for name, dtype in same.items()}

    def layer(self, region: Region) -> None:
        """Notes what a layer makes that PyTorch calls: a product in 16 bits, what autocast runs in float32 in that,
        others in the widest dtype of their inputs."""
        layer = region.steps[0]
        first, second = (
            _WIDE if _WIDE in found else _SOME for found in zip(*map(self._of, region.inputs), strict=True)
        )
        made = (_WIDE, _WIDE) if layer.autocast == "float32" else (first, second)
        self._found |= dict.fromkeys(region.results, (_SOME, _SOME) if layer.anchor else made)

    def add(self, region: Region, spec: SpecModel, chain: Chain) -> None:
        """Notes what a region makes. spec, chain: of its own."""
        made: list[Mapping[str, str]] = []
        for call in range(2):
            given = {name: self._of(name)[call] for name in region.inputs}
            activation = _SOME if chain.anchor is not None else given[next(iter(region.inputs))]
            made.append(values_under_autocast(spec, chain, activation, given, region.results))
        self._found |= {name: (made[0][name], made[1][name]) for name in region.results}

    def _of(self, name: str) -> tuple[str, str]:
        """Of a value; one of a region that cannot be planned counts as an input."""
        return self._found.get(name, (_WIDE, _SOME))
