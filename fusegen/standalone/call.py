"""The forward method of a standalone module: what a call checks, and what it passes to the ops.

Names of the spec are local variables there; all others begin with an underscore, which no name of a spec does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fusegen.plan.dimensions import dimensions, fixed_dimensions
from fusegen.plan.model import Variant
from fusegen.plan.modes import alike
from fusegen.render.environment import wrap
from fusegen.render.functions import as_tuple
from fusegen.render.module import order
from fusegen.render.operators import OpRenderer
from fusegen.render.preconditions import preconditions
from fusegen.standalone.drops import SAMPLES, Drops
from fusegen.standalone.named import NamedPlan
from fusegen.standalone.views import check_and_view, rows_of_samples, viewed_back

_REFUSED = re.compile(r"_support\.refused\((.*)\)", re.DOTALL)
# The package's functions that look at constants, and what takes their place here.
HELPERS = {"not_numbers": "_require_numbers", "beyond": "_require_in_range", "far_from_one": "_require_near_one"}


class Call:
    """Prints the body of `forward`, or of the method that runs a region, whose inputs are [rows, channels]."""

    def __init__(self, named: NamedPlan) -> None:
        plan = named.plan
        self.named, self.plan, self.chain = named, plan, plan.chain
        self.inputs = [tensor.name for tensor in plan.chain.inputs]
        fixed = fixed_dimensions(plan.chain)
        self.first, self.others = self.inputs[0], [name for name in self.inputs[1:] if name not in fixed]
        self.further = list(plan.chain.further)
        self.norms = [name for name, tracked in plan.chain.batch_norms if tracked]
        self.untracked = len(plan.chain.batch_norms) > len(self.norms)
        self.drops = Drops(plan.chain)

    def body(self) -> list[str]:
        lines, result = [], ""
        if not self.named.region:
            lines = check_and_view(dimensions(self.plan), self.first, self.others)
            result = viewed_back(dimensions(self.plan), self.chain.drops_channels)
            if self.drops.by_sample:
                lines.append(f"{SAMPLES} = {rows_of_samples(dimensions(self.plan))}")
        lines += [*self._dtypes(), *self._operands(), *self._groups(), *self._eps(), *self.drops.reads()]
        draws = self.drops.draws(self.first)
        lines += self._one_row() if self.untracked else []
        if not self.norms:
            if draws:  # as nn.Dropout: nothing is drawn where nothing is dropped
                lines += [f"if {self.drops.all_kept()}:", *(f"    {line}" for line in self._apply(1, {}, result, []))]
            return [*lines, *self._apply(0, {}, result, draws)]
        training = f"self.{self.norms[0]}.training"
        if len(self.norms) > 1:
            others = " or ".join(f"self.{name}.training != {training}" for name in self.norms[1:])
            lines += [f"if {others}:", '    raise RuntimeError("some batch norms are in training, some are not")']
        evaluation = self._apply(1, {}, result, [])
        if draws:
            reason = "a dropout is in training, and the batch norms are in evaluation"
            evaluation = [f"if not ({self.drops.all_kept()}):", f'    raise ValueError("{reason}")', *evaluation]
        lines += [f"if not {training}:", *(f"    {line}" for line in evaluation)]
        lines += [] if self.untracked else self._one_row()
        return [*lines, *self._momenta(), *self._apply(0, self._replaced(), result, [*self._counts(), *draws])]

    def _dtypes(self) -> list[str]:
        first, c = self.first, self.chain.contraction
        lines = ["_autocast = _autocast_dtype()"]
        lines += [f"_activation = {f'_autocast or {first}.dtype' if c else f'{first}.dtype'}"]
        further = [f"{names[0]}.dtype" for names in alike(self.plan.modes, self.further)]
        key = as_tuple(["_activation", self._parameter_dtype(), *further])
        return [*lines, f"_mode = _find_mode({self.named.modes}, {key}, _autocast is not None)"]

    def _parameter_dtype(self) -> str:
        chain = self.chain
        attributes = [p.attribute for p in chain.parameters.values()]
        attributes += [chain.contraction.attribute] if chain.contraction else []
        attributes += [b.attribute for b in chain.buffers.values() if not b.integer]
        return f"self.{attributes[0]}.dtype" if attributes else "_activation"

    def _operands(self) -> list[str]:
        """The operands of the product, as autocast casts the arguments of F.linear."""
        c = self.chain.contraction
        if c is None:
            return []
        weight = f"self.{c.attribute}{'.t()' if c.by_columns else ''}"
        lines = [f"_operand, _weight = {self.first}.to(_activation), {weight}.to(_activation)"]
        if self.plan.has_precisions:
            lines += [
                "_precision, _operand_pieces, _weight_pieces = 0, None, None",
                "if _is_split(_operand, _weight, self.training):",
                "    _operand_pieces, _weight_pieces = _kernels.split(_operand), _kernels.split(_weight)",
                "    _precision = 1",
            ]
        return lines

    def _groups(self) -> list[str]:
        found = [step for step in self.plan.spec.chain if step.op == "group_norm"]
        several = [f"self.{step.name}.num_groups" for step in found if step.num_groups != 1]
        lines = []
        if several:
            lines = [f"_groups = {several[0]}"]
            conditions = [f"{each} != _groups" for each in several[1:]]
            if conditions:
                lines += [f"if {' or '.join(conditions)}:", '    raise ValueError("the numbers of groups differ")']
            channels = self._channels()
            lines += [
                f"if {self.first}.shape[0] == 1 and _groups == {channels}:",
                '    raise ValueError("expected more than one value for each group")',
            ]
        return lines

    def _channels(self) -> str:
        c, parts = self.chain.contraction, self.chain.number_of_parts
        width = f"self.{c.attribute}.shape[{int(c.by_columns)}]" if c else f"{self.first}.shape[-1]"
        return width if parts == 1 else f"{width} // {parts}"

    def _eps(self) -> list[str]:
        lines = []
        for step in self.plan.spec.chain:
            if step.op == "rms_norm" and step.eps is None:
                lines.append(f"_{step.name}_eps = torch.finfo(torch.float32).eps  # as PyTorch has it, in 16 bits too")
        return lines

    def _one_row(self) -> list[str]:
        return [
            f"if {self.first}.shape[0] == 1:",
            '    raise ValueError("expected more than one row: the variance of one has no meaning")',
        ]

    def _momenta(self) -> list[str]:
        """The momentum of each batch norm, as the kernels take it: negative for the cumulative average."""
        lines = []
        for name in self.norms:
            lines += [
                f"_{name}_momentum = self.{name}.momentum",
                f"if _{name}_momentum is None:  # by the count, which all blocks read: so none of them may raise it",
                f"    _{name}_momentum = -1.0",
                f"elif not isinstance(_{name}_momentum, (int, float)) or _{name}_momentum < 0:",
                f'    raise ValueError("{name}.momentum must be None or a number from 0 on")',
            ]
        return lines

    def _counts(self) -> list[str]:
        """What counts the batch where the kernels do not."""
        lines = []
        for name in self.norms:
            lines += [f"if self.{name}.momentum is None:", f"    self.{name}.num_batches_tracked.add_(1)"]
        return lines

    def _replaced(self) -> dict[str, str]:
        return {self.chain.name_of(f"{name}.momentum"): f"_{name}_momentum" for name in self.norms}

    def _apply(self, index: int, replaced: dict[str, str], result: str, before: list[str]) -> list[str]:
        """Calls the ops of a variant. replaced: arguments that have other expressions. before: statements once nothing
        can refuse the call any more."""
        variant = self.plan.variants[index]
        renderer = OpRenderer(self.plan, variant)
        op = renderer.forward()
        constant = {name for name, _, _ in renderer.sources()} - variant.gradients.keys()
        sources = dict(self._sources(variant)) | replaced
        arguments, numbers = [], []
        for argument in op.arguments:
            source = sources[argument.public]
            if argument.cpp == "double" and argument.public not in replaced:
                numbers.append(source)
            arguments.append(f"{source}.detach()" if argument.public in constant else source)
        lines = [*self._checks(variant, numbers), *before]
        body = wrap(", ".join(arguments), 76, 4).splitlines()
        run = f"{self.named.function(variant)}, {self.named.kernels}.{op.function}, ("
        values = [*(f"    {line.strip()}" for line in body[:-1]), f"    {body[-1].strip()},"]
        wanted = order(self.plan)
        if not wanted:
            return [*lines, f"return _run({run}", *values, f")){result}"]
        if not result:
            return [*lines, f"return _run_several({run}", *values, f"), {wanted})"]
        back = f"return tuple(each{result} for each in _results)"
        return [*lines, f"_results = _run_several({run}", *values, f"), {wanted})", back]

    def _sources(self, variant: Variant) -> Iterator[tuple[str, str]]:
        """Where each argument of the forward op comes from."""
        chain, c = self.chain, self.chain.contraction
        yield from ((name, name) for name in self.inputs)
        if c:
            yield from ((c.operand, "_operand"), (c.weight, "_weight"))
        for table in (chain.parameters, chain.buffers, variant.chain.buffers, chain.constants):
            yield from ((name, f"self.{each.attribute}") for name, each in table.items())
        for step in self.plan.spec.chain:
            if step.op == "rms_norm" and step.eps is None:
                yield chain.name_of(f"{step.name}.eps"), f"_{step.name}_eps"
        yield from (("_dtype_mode", "_mode"), ("_channels", self._channels()), ("_groups", "_groups"))
        yield from ((name, name) for name in ("_precision", "_operand_pieces", "_weight_pieces"))
        yield from self.drops.sources()

    def _checks(self, variant: Variant, numbers: list[str]) -> list[str]:
        """What the constants must be for the kernels, and for PyTorch."""
        owners = {step.name: f"self.{step.name}" for step in self.plan.spec.chain if step.module}
        lines = []
        for text in preconditions(self.plan, variant, numbers, owners):
            refused = _REFUSED.fullmatch(text)
            if refused:
                lines += [f"if {refused[1]}:", f'    raise ValueError("refused, as by PyTorch: {refused[1]}")']
            elif text.startswith("_support.uncounted"):
                lines += [
                    f"if {self._channels()} > 2**24:",
                    '    raise ValueError("the kernels number up to 2**24 channels")',
                ]
            else:
                name, _, rest = text.removeprefix("_support.").partition("(")
                lines += wrap(f"{HELPERS[name]}({rest}", 80, 4).splitlines()
        return lines
