"""Products with a matrix that is the module's own parameter."""

from __future__ import annotations

from typing import Any

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.model import Contraction, Parameter
from fusegen.chain.module import INITS, shape_text
from fusegen.ir.axes import CHANNEL, Dim
from fusegen.ir.graph import Node


def multiply(chain: ChainBuilder, step: Any, x: Node | None) -> Node:
    """The product of the running value with the parameter of a `matmul` step, which can only be the first."""
    _declare(chain, step.parameter, step.init, "init")
    dims = chain.shape(step.shape) if step.shape is not None else None
    if x is not None:
        chain.refuse("FG308", "matmul can only be the first step of a chain")
    if dims is not None and len(dims) != 2:
        chain.refuse("FG303", f"the weight has the shape {shape_text(dims)}, but a matrix is needed", "shape")
    if x is not None or dims is None or len(dims) != 2:
        chain.channels = None
        return x if x is not None else chain.begin(step.parameter or "x")
    given, out = reversed(dims) if step.transposed else dims
    _check_width(chain, dims, given)
    chain.symbols.constructed(dims, "shape")
    operand, product = (chain.name_of(step.parameter, key) for key in ("input", "product"))
    chain.contraction = Contraction(
        name=step.parameter,
        source=chain.inputs[0].name if chain.inputs else "x",
        in_features=chain.channels or given,
        out_features=out,
        operand=operand,
        weight=step.parameter,
        product=product,
        attribute=step.parameter,
        by_columns=not step.transposed,
    )
    chain.places.setdefault(step.parameter, chain.diagnostics.place("parameter"))
    chain.channels = out
    return chain.begin(product)


def bias_of(chain: ChainBuilder, step: Any) -> Node:
    """The parameter that the product's `bias` names, [out_features]."""
    _declare(chain, step.bias, step.bias_init, "bias_init")
    if chain.channels is None:
        return chain.stand_in(step.bias)
    chain.declare_parameter(Parameter(step.bias, step.bias, (chain.channels,), CHANNEL, in_product=True), "bias")
    return chain.graph.tensor(step.bias, CHANNEL)


def _declare(chain: ChainBuilder, name: str, init: Any, field: str) -> None:
    chain.own(name, "bias" if field == "bias_init" else "parameter")
    if isinstance(init, str) and init not in INITS:
        chain.symbols.argument(init, field, ("float", "int"), INITS)


def _check_width(chain: ChainBuilder, shape: tuple[Dim | None, ...], given: Dim | None) -> None:
    if chain.channels is not None and given is not None and chain.channels != given:
        message = f"the weight {shape_text(shape)} takes {given} channels, but the input has {chain.channels}"
        chain.refuse("FG303", message, "shape")
