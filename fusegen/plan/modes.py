"""The dtype combinations that are compiled, and the dtype that eager PyTorch gives the result in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusegen.chain.model import Chain
from fusegen.ops.step import Dtypes
from fusegen.plan.model import Mode, Role

VERIFICATION_DTYPE = "float64"


def modes(spec, chain: Chain) -> list[Mode]:
    """Plain modes (everything in one dtype), then autocast modes: activations in 16 bits, parameters in float32.

    Under autocast a further input may come in float32 or already in the autocast dtype; each is a mode of its
    own. Without an anchor autocast casts nothing, so the first input may be in float32 as well, and then others may be
    in any of the dtypes. The last
    mode is float64, which only verification builds compile.
    """
    found = [_mode(spec, chain, dtype, dtype, dtype, False) for dtype in spec.dtypes]
    for mode in _autocast_modes(spec, chain) if "float32" in spec.dtypes else ():
        same = next((i for i, other in enumerate(found) if other.roles == mode.roles), None)
        if same is None:
            found.append(mode)
        else:
            found[same] = replace(found[same], autocast=True)
    found.append(_mode(spec, chain, VERIFICATION_DTYPE, VERIFICATION_DTYPE, VERIFICATION_DTYPE, False))
    return [replace(mode, index=index) for index, mode in enumerate(found)]


def _autocast_modes(spec, chain: Chain) -> Iterator[Mode]:
    if not chain.has_anchor and any(step.autocast == "16 bits" for step in spec.chain):
        return  # the result has autocast's own dtype, which no tensor at hand tells
    further = list(chain.further)
    for dtype in spec.dtypes:
        if chain.has_anchor and dtype == "float32":
            continue
        parameter = "float32" if chain.has_weight or chain.parameters or chain.buffers else dtype
        # A residual in float32 meets what a layer has made in 16 bits.
        narrow = spec.dtypes if dtype == "float32" else (dtype,)
        for other in dict.fromkeys(("float32", *narrow)) if further else ("float32",):
            yield _mode(spec, chain, dtype, parameter, other, True)


def _mode(spec, chain: Chain, activation: str, parameter: str, other: str, autocast: bool) -> Mode:
    roles: dict[Role, str] = {"activation": activation, "parameter": parameter}
    roles |= {f"input {name}": other for name in chain.further}
    roles["output"] = _running_dtypes(spec, chain, activation, parameter, other, autocast)[-1]
    saved = _saved_dtypes(spec, chain, activation, parameter, other, autocast)
    roles |= {f"output {name}": saved[name] for name in chain.further_results if name in saved}
    name = f"autocast {activation}" if autocast else activation
    if autocast and any(role.startswith("input ") for role in roles):
        name += f", inputs {other}"
    return Mode(0, name, roles, autocast, plain=not autocast)


def eager_dtypes(spec, chain: Chain, mode: Mode, step: int) -> set[str]:
    """What eager PyTorch has the value before a step in: one dtype, unless autocast makes a difference in the mode."""
    activation, parameter = mode.roles["activation"], mode.roles["parameter"]
    other = next((dtype for role, dtype in mode.roles.items() if role.startswith("input ")), activation)
    calls = [autocast for autocast, made in ((False, mode.plain), (True, mode.autocast)) if made]
    return {_running_dtypes(spec, chain, activation, parameter, other, autocast)[step] for autocast in calls}


def _running_dtypes(spec, chain: Chain, activation: str, parameter: str, other: str, autocast: bool) -> list[str]:
    """Of the value before each step, and of the result."""
    return _dtypes(spec, chain, activation, parameter, other, autocast)[0]


def _saved_dtypes(spec, chain: Chain, activation: str, parameter: str, other: str, autocast: bool) -> dict[str, str]:
    """Of each value that has a name."""
    return _dtypes(spec, chain, activation, parameter, other, autocast)[1]


def _dtypes(
    spec, chain: Chain, activation: str, parameter: str, other: str, autocast: bool
) -> tuple[list[str], dict[str, str]]:
    named = {**dict.fromkeys(chain.tail_inputs, other), chain.source.name: activation}
    shapes = {given.name: given.shape for given in chain.inputs if given.name in chain.further}
    shapes |= {p.name: p.shape for p in chain.parameters.values()}
    named |= {f"rank of {name}": str(len(shape)) for name, shape in shapes.items()}
    found = [activation]
    for step in spec.chain:
        if step.from_ is not None:
            found[-1] = named[step.from_]
        found.append(step.result_dtype(found[-1], Dtypes(activation, parameter, autocast, named)))
        named |= dict.fromkeys(step.saved, found[-1])
    return found, named
