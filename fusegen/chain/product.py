"""Products with a matrix that is the module's own parameter."""

from __future__ import annotations

from typing import Any

from fusegen.chain.anchors import Batched, Contraction
from fusegen.chain.builder import ChainBuilder
from fusegen.chain.module import INITS
from fusegen.chain.shape import certain
from fusegen.chain.state import Parameter
from fusegen.chain.view import shape_text
from fusegen.ir.axes import CHANNEL, Dim
from fusegen.ir.graph import Node


def multiply(chain: ChainBuilder, step: Any, x: Node | None) -> Node:
    """The product of the running value with the parameter of a `matmul` step, which can only be the first."""
    _declare(chain, step.parameter, step.init, "init")
    dims = chain.sizes_of(step.shape) if step.shape is not None else None
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
    if out != chain.channels:
        chain.check_leading((out,))
    operand, product = (chain.name_of(step.parameter, key) for key in ("input", "product"))
    anchor = Contraction(
        name=step.parameter,
        source=chain.inputs[0].name if chain.inputs else "x",
        width=certain(chain.channels or given),
        channels=certain(out),
        operand=operand,
        weight=step.parameter,
        result=product,
        attribute=step.parameter,
        by_columns=not step.transposed,
    )
    chain.places.of.setdefault(step.parameter, chain.diagnostics.place("parameter"))
    return chain.begin_product(anchor)


def multiply_batches(chain: ChainBuilder, step: Any, x: Node | None) -> Node:
    """The product with an input of a `bmm` step, which can only be the first."""
    known = {tensor.name: tensor.shape for tensor in chain.inputs}
    shape = known.get(step.input)
    if shape is None and not chain.symbols.is_unread("inputs", step.input):
        hint = chain.symbols.references.missing("input", step.input, known)
        chain.refuse("FG301", f"no input named '{step.input}'", "input", hint)
    if x is not None:
        chain.refuse("FG308", "bmm can only be the first step of a chain")
    first = chain.inputs[0].shape if chain.inputs else ()
    if shape is None or x is not None or len(first) != 3:
        chain.channels = None
        return x if x is not None else chain.begin(step.input)
    chain.symbols.references.use("input", step.input)
    if step.input == chain.inputs[0].name:
        chain.refuse("FG303", "the first input is multiplied by another one, not by itself", "input")
    batch, rows, width = map(certain, first)
    other, inner, out = shape if len(shape) == 3 else (None, None, None)
    if step.transposed:
        inner, out = out, inner
    pairs = ((other, batch), (inner, width))
    if len(shape) != 3 or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        wanted = shape_text((batch, None, width) if step.transposed else (batch, width, None))
        message = f"the input '{step.input}' has the shape {shape_text(shape)}, but {wanted} is needed"
        chain.refuse("FG303", message, "input")
        chain.channels = None
        return chain.begin(step.input)
    chain.anchor = Batched(
        source=chain.inputs[0].name,
        other=step.input,
        transposed=step.transposed,
        batch=batch,
        rows=rows,
        width=width,
        channels=certain(out),
        result=chain.name_of(step.name, "result"),
    )
    chain.places.of.setdefault(step.name, chain.diagnostics.place("op"))
    chain.channels = out
    return chain.begin(chain.anchor.result)


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
