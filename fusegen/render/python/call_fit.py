"""What makes a module another one than its package was generated for, as statements of its call."""

from __future__ import annotations

from fusegen.ir.axes import Dim
from fusegen.ir.multiples import text_of, times
from fusegen.render.ops.functions import as_tuple, repr_double
from fusegen.render.python.call_names import CallNames, misfit, refuse
from fusegen.render.python.call_shapes import inputs_fit
from fusegen.render.python.call_trailing import trailing_shape


def tensors_fit(call: CallNames) -> list[str]:
    checks: list[str] = []
    c = call.chain.contraction
    if c:
        checks.append(f'_support.misfit_operand("{c.attribute}", {c.weight}, _activation, _autocast)')
    v = call.chain.convolution
    if v:
        checks.append(f'_support.misfit_operand("{v.name}.weight", {v.weight}, _activation, _autocast)')
    b = call.chain.batched
    if b:
        checks.append(f'_support.misfit_operand("{b.other}", {b.other}, _activation, _autocast)')
    groups: dict[tuple[Dim, ...], list[tuple[str, str]]] = {}
    for p in call.chain.parameters.values():
        groups.setdefault(p.shape, []).append((p.attribute, p.name))
    checks += [misfit(found, "_parameter", _shape(call, shape)) for shape, found in groups.items()]
    checks += inputs_fit(call)
    checks += _unexpected(call)
    for step in call.owners:
        if step.op in ("layer_norm", "rms_norm"):
            width = "_block" if step.width is not None else "_channels"
            shape = trailing_shape(call) if call.chain.trailing else f"({width},)"
            checks.append(f"_support.other_shape({call.local[step.name]}, {shape})")
        elif step.op.startswith("adaptive"):
            checks.append(f"_support.other_output({call.local[step.name]})")
    return [*_blocks(call), *refuse(checks), *_weights_fit(call)]


def _weights_fit(call: CallNames) -> list[str]:
    """Kernels have no gradient of buffers. PyTorch's losses have none of the weights of channels, and refuse to be
    asked for one."""
    loss = call.chain.result.loss
    fixed = {p.name: "WANTS_GRADIENT" for p in call.chain.parameters.values() if not p.learnt}
    if loss is not None and loss.weight is not None:
        fixed[loss.weight] = "REFUSED"
    return [
        line
        for name, why in fixed.items()
        for line in (
            f"if {name}.requires_grad and torch.is_grad_enabled():",
            f"    return None, _support.{why}",
        )
    ]


def _blocks(call: CallNames) -> list[str]:
    """The width of blocks of channels that are normalised each, and how many there are."""
    norms = [step for step in call.owners if getattr(step, "width", None) is not None]
    if not norms:
        return []
    return [
        f"_block = {call.local[norms[0].name]}.normalized_shape[-1]",
        "if _channels % _block:",
        "    return None, _support.REFUSED",
        "_groups = _channels // _block",
    ]


def _shape(call: CallNames, shape: tuple[Dim, ...]) -> str:
    width = times(call.chain.number_of_parts, "_channels")
    names = {
        call.chain.source_channels: width,
        call.chain.channels: "_channels",
        call.chain.rows: f"{call.first}.shape[0]",
    }
    names |= {dim: f"_trailing[{index}]" for index, dim in enumerate(call.chain.trailing) if isinstance(dim, str)}
    names |= {step.width: "_block" for step in call.owners if getattr(step, "width", None) is not None}
    return as_tuple([text_of(dim, names) for dim in shape])


def _unexpected(call: CallNames) -> list[str]:
    """Tensors that a submodule would read and the chain does not have."""
    known = {p.attribute for p in call.chain.parameters.values()}
    known |= {b.attribute for variant in call.plan.variants for b in variant.chain.buffers.values()}
    if call.chain.contraction:
        known.add(call.chain.contraction.attribute)
    if call.chain.convolution:
        known.add(f"{call.chain.convolution.name}.weight")
    tracked = call.tracked()
    names = []
    for step in call.owners:
        for tensor in step.tensors:
            attribute = f"{step.name}.{tensor}"
            if attribute not in known and not (step.name in tracked and tensor == "num_batches_tracked"):
                names.append(attribute)
    if not names:
        return []
    attributes = as_tuple([repr_double(name) for name in names])
    return [f"_support.unexpected({attributes}, {as_tuple([call.tensor(name) for name in names])})"]


def groups_fit(call: CallNames) -> list[str]:
    """Numbers of groups, which a user may change; PyTorch itself refuses those that do not divide."""
    if not any(step.op == "instance_norm" for step in call.owners):
        return _group_norms(call)
    if call.chain.spatial:
        return ["if _support.has_one_position(_shape):", "    return None, _support.REFUSED", *_group_norms(call)]
    return ["if _channels == 1:", "    return None, _support.REFUSED", *_group_norms(call)]


def _group_norms(call: CallNames) -> list[str]:
    norms = [step for step in call.owners if step.op == "group_norm"]
    if not norms:
        return []
    is_one = "_support.has_no_variance(_shape)" if call.chain.spatial else f"{call.first}.shape[0] == 1"
    several = [step for step in norms if step.num_groups != 1]
    lines = []
    conditions = [f"type({call.local[step.name]}.num_groups) is not int" for step in norms]
    if several:
        lines.append(f"_groups = {call.local[several[0].name]}.num_groups")
        conditions.append("_groups < 1 or _channels % _groups")
        # One value a group.
        conditions.append(f"{is_one} and _groups == _channels")
    if any(step.num_groups == 1 for step in norms):
        conditions.append(f"{is_one} and _channels == 1")
    lines += ["if (", *(f"    {'or ' if i else ''}{text}" for i, text in enumerate(conditions)), "):"]
    lines.append("    return None, _support.REFUSED")
    others = [f"{call.local[step.name]}.num_groups != _groups" for step in several[1:]]
    others += [f"{call.local[step.name]}.num_groups != 1" for step in norms if step.num_groups == 1]
    if others:
        lines += [f"if {' or '.join(others)}:", "    return None, _support.OTHER_GROUPS"]
    return lines
