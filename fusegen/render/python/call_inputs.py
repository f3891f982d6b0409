"""What a call reads of the module and its inputs, as statements: parameters, sizes, dtypes, operands of the product."""

from __future__ import annotations

from fusegen.chain.anchors import Batched, Contraction, Convolution
from fusegen.chain.convolution import shape_form
from fusegen.ir.axes import CHANNEL
from fusegen.plan.programs.modes import alike
from fusegen.render.ops.functions import as_tuple
from fusegen.render.python.call_names import WIDTH, CallNames, refuse
from fusegen.render.python.call_trailing import flattened, sizes_of_trailing, widened
from fusegen.render.text.environment import wrap


def parameters(call: CallNames) -> list[str]:
    """Each parameter once, into a variable of the name that the ops' argument has."""
    lines = []
    if call.chain.contraction:
        c = call.chain.contraction
        lines.append(f"{c.weight} = {call.tensor(c.attribute)}")
    v = call.chain.convolution
    if v:
        lines.append(f"{v.weight} = {call.tensor(f'{v.name}.weight')}")
    return lines + [f"{p.name} = {call.tensor(p.attribute)}" for p in call.chain.parameters.values()]


def sizes(call: CallNames) -> list[str]:
    """What the kernels take as the numbers of rows and channels. An input of another width fits nothing."""
    if call.chain.convolution:
        return _sizes_of_convolution(call, call.chain.convolution)
    name, c = call.first, call.chain.contraction
    if call.chain.spatial:
        return _sizes_of_images(call)
    if call.chain.batched:
        return _sizes_of_batches(call, call.chain.batched)
    if c:
        lines = _sizes_of_weight(call, c)
    elif call.chain.trailing:
        return sizes_of_trailing(call)
    else:
        lines = [f"_channels = {name}.shape[-1]", *_of_part(call)]
        width = _width(call)
        if width is None:
            return lines
        lines = [f"_channels = _width = {width}", *_of_part(call)]
    lines += [
        f"if {name}.shape[-1] != _width:",
        f'    raise _support.other_shape_of(_package, "{name}", {name}, f"*, {{_width}}")',
    ]
    return lines


def _sizes_of_weight(call: CallNames, c: Contraction) -> list[str]:
    return [
        *refuse([f'_support.misfit_weight("{c.attribute}", {c.weight})']),
        *([f"{c.weight} = {c.weight}.t()"] if c.by_columns else []),
        f"_channels, _width = {c.weight}.shape",
        *_of_part(call),
    ]


def _sizes_of_convolution(call: CallNames, c: Convolution) -> list[str]:
    name, layer = call.first, call.local[c.name]
    form = shape_form(c.dimensions)
    own, per_group = f"{c.weight}.shape[0]", f"{c.weight}.shape[1] * {layer}.groups"
    channels, width = (per_group, own) if c.transposed else (own, per_group)
    lines = [
        f"if {name}.dim() != {len(form)}:",
        "    return None, _support.UNBATCHED",
        *refuse([f'_support.misfit_convolution("{c.name}", {layer}, {c.weight})']),
        f"_channels = {channels}",
        *_of_part(call),
        f"_width = {width}",
        *_other_width(name, form),
    ]
    chain = call.chain
    samples = any(dropout.by_sample for dropout in chain.dropouts)
    samples |= chain.result.of_samples or any(variant.of_samples for variant in call.plan.variants)
    if samples or any((call.further, chain.masks, chain.targets, chain.batch_norms, chain.result.pool)):
        lines.append(f"_shape = _support.result_shape({layer}, {name}, {c.weight}, _channels)")
    return lines


def _sizes_of_images(call: CallNames) -> list[str]:
    """An input with other dimensions is PyTorch's operators' business, which take some and refuse others."""
    name, form, c = call.first, shape_form(call.chain.spatial), call.chain.contraction
    lines = [f"if {name}.dim() != {len(form)}:", "    return None, _support.OTHER_POSITIONS"]
    width = None if c else _width(call, at=1)
    if c:
        width = f"{c.weight}.shape[1]"
        lines += _sizes_of_weight(call, c)
    else:
        lines.append(f"_channels = {name}.shape[1]" if width is None else f"_channels = _width = {width}")
        lines += _of_part(call)
    lines += _other_width(name, form) if width is not None else []
    # Of one part, as results have it.
    return [*lines, f"_shape = ({name}.shape[0], _channels, *{name}.shape[2:])"]


def _other_width(name: str, form: tuple[str, ...]) -> list[str]:
    """Statements that refuse images of other channels."""
    return [
        f"if {name}.shape[1] != _width:",
        f'    _form = f"{form[0]}, {{_width}}, {", ".join(form[2:])}"',
        f'    raise _support.other_shape_of(_package, "{name}", {name}, _form)',
    ]


def _sizes_of_batches(call: CallNames, b: Batched) -> list[str]:
    inner, out = (-1, -2) if b.transposed else (-2, -1)
    form = "{_width}, *" if not b.transposed else "*, {_width}"
    return [
        f"_width, _channels = {b.source}.shape[-1], {b.other}.shape[{out}]",
        f"if {b.other}.shape[{inner}] != _width:",
        f'    raise _support.other_shape_of(_package, "{b.other}", {b.other}, f"..., {form}")',
        "if _channels == 0:",
        "    return None, _support.EMPTY",
        f"if {b.other}.shape[:-2] != {b.source}.shape[:-2]:",
        "    return None, _support.OTHER_BATCH",
        *_of_part(call),
    ]


def _of_part(call: CallNames) -> list[str]:
    """From the channels of all parts to those of one. PyTorch's operators divide others as they can."""
    parts = call.chain.number_of_parts
    if parts == 1:
        return []
    return [f"if _channels % {parts}:", "    return None, _support.UNEQUAL_PARTS", f"_channels //= {parts}"]


def _width(call: CallNames, at: int = -1) -> str | None:
    """The channels of the source, of which dimension `at` of the first input has the number; None for any."""
    dim = call.chain.source_channels
    if isinstance(dim, int):
        return str(dim)
    whole = [p for p in call.chain.parameters.values() if CHANNEL <= p.axes and not p.repeated]
    parameter = next(iter(whole), None)
    if parameter is None:
        return None
    parts = call.chain.number_of_parts
    times = f"{parts} * " if parts > 1 else ""
    # That of a norm has one dimension, and of a result with the rows behind the channels the channels are anywhere.
    own = -1 - call.chain.spatial if len(parameter.shape) > call.chain.spatial else -1
    if call.chain.result.transposed and dim in parameter.shape:
        own = parameter.shape.index(dim) - len(parameter.shape)
    return f"{call.first}.shape[{at}] if {parameter.name} is None else {times}{parameter.name}.shape[{own}]"


def dtypes(call: CallNames) -> list[str]:
    """The dtype mode, and the dtypes of activations and parameters."""
    firsts = [names[0] for names in alike(call.plan.modes, call.further)]
    parameter = _first_parameter(call)
    further = as_tuple([f"{name}.dtype" for name in firsts])
    casts = str(call.chain.anchor is not None)
    given = ", ".join(["_package", "_device", call.first, parameter, further, casts])
    line = f"_mode, _activation, _parameter, _autocast, _why = _support.choose_mode({given})"
    return [*widened(call), *wrap(line, WIDTH - 8, 4).splitlines(), "if _why:", "    return None, _why"]


def _first_parameter(call: CallNames) -> str:
    """A tensor that has the dtype of the module: the first parameter in the tail, else that of the linear layer or of
    statistics. None where there is no such."""
    names = list(call.chain.parameters)
    if names:
        return names[0]
    if call.chain.contraction:  # as it is before autocast
        return call.chain.contraction.weight
    if call.chain.convolution:
        return call.chain.convolution.weight
    statistics = [b.attribute for b in call.chain.buffers.values() if not b.integer]
    return call.tensor(statistics[0]) if statistics else "None"


def windows(call: CallNames) -> list[str]:
    """How positions are pooled."""
    pool = call.chain.result.pool
    if pool is None:
        return []
    return [
        f"_windows = _support.windows_of({call.local[pool.name]}, _shape)",
        "if _windows is None:",
        "    return None, _support.OTHER_WINDOWS",
    ]


def operands(call: CallNames) -> list[str]:
    """The operands of the matrix product, as autocast casts the arguments of F.linear; or what a convolution takes."""
    v = call.chain.convolution
    if v:
        given = f"{call.local[v.name]}, {call.first}, {v.weight}, _activation"
        return [f"{v.result} = _support.Convolved(", f"    {given}", ")"]
    b = call.chain.batched
    if b:
        return [f"{b.result} = _support.Multiplied({b.source}, {b.other}, {b.transposed})"]
    if call.chain.trailing:
        return flattened(call)
    c = call.chain.contraction
    if not c:
        return []
    given = c.operand if call.chain.spatial else call.first
    precision = [f"_precision = _support.choose_precision(self, {given}, {c.weight}, _activation)"]
    first = [f"{c.operand} = {call.first}.movedim(1, -1)"] if call.chain.spatial else []
    return [
        *first,
        *(precision if call.plan.has_precisions else []),
        *([] if first else [f"{c.operand} = {call.first}"]),
        "if _autocast:",
        f"    {c.operand} = {c.operand}.to(_activation)",
        f"    {c.weight} = {c.weight}.to(_activation)",
    ]
