"""The dtype combinations that are compiled, and the dtype that eager PyTorch gives the result in each."""

from __future__ import annotations

from fusegen.ir.chain import Chain
from fusegen.ops.step import Dtypes
from fusegen.plan.model import Mode, Role

VERIFICATION_DTYPE = "float64"


def modes(spec, chain: Chain) -> list[Mode]:
    """Plain modes (everything in one dtype), then autocast modes: activations in 16 bits, parameters in float32.

    Under autocast a further input may come in float32 or already in the autocast dtype; each is a mode of its
    own. The last
    mode is float64, which only verification builds compile.
    """
    found = [_mode(spec, chain, dtype, dtype, dtype, False) for dtype in spec.dtypes]
    if chain.contraction and "float32" in spec.dtypes:
        for dtype in spec.dtypes:
            if dtype == "float32":
                continue
            for other in ("float32", dtype) if chain.tail_inputs else ("float32",):
                found.append(_mode(spec, chain, dtype, "float32", other, True))
    found.append(_mode(spec, chain, VERIFICATION_DTYPE, VERIFICATION_DTYPE, VERIFICATION_DTYPE, False))
    return [Mode(index, mode.name, mode.roles, mode.autocast) for index, mode in enumerate(found)]


def _mode(spec, chain: Chain, activation: str, parameter: str, other: str, autocast: bool) -> Mode:
    roles: dict[Role, str] = {"activation": activation, "parameter": parameter}
    for name in chain.tail_inputs:
        if name != chain.source.name:
            roles[f"input {name}"] = other
    roles["output"] = _result_dtype(spec, chain, activation, parameter, other, autocast)
    name = f"autocast {activation}" if autocast else activation
    if autocast and chain.tail_inputs:
        name += f", inputs {other}"
    return Mode(0, name, roles, autocast)


def _result_dtype(spec, chain: Chain, activation: str, parameter: str, other: str, autocast: bool) -> str:
    named = {"activation": activation, **dict.fromkeys(chain.tail_inputs, other)}
    named |= {f"rank of {p.name}": str(len(p.shape)) for p in chain.parameters.values()}
    running = activation
    for step in spec.chain:
        running = step.result_dtype(running, Dtypes(parameter, autocast, named))
        if step.save:
            named[step.save] = running
    return running
