"""The method of a generated module that decides a call: the op and its arguments, or why PyTorch's operators run.

Names of the spec are local variables there; all others begin with an underscore, which no name of a spec does.
"""

from __future__ import annotations

from fusegen.ir.axes import CHANNEL, Dim
from fusegen.plan.model import Variant
from fusegen.plan.plan import Plan
from fusegen.render.environment import wrap
from fusegen.render.functions import as_tuple, repr_double, variable
from fusegen.render.operators import OpRenderer
from fusegen.render.preconditions import preconditions

_OURS = {"_dtype_mode": "_mode", "_groups": "_groups"}  # arguments that are none of the chain's
_WIDTH = 100


class CallRenderer:
    def __init__(self, plan: Plan, renderers: list[OpRenderer]) -> None:
        self.plan, self.chain, self.renderers = plan, plan.chain, renderers
        self.first = self.chain.inputs[0].name
        self.owners = [step for step in plan.spec.chain if step.module]
        self.local = self._locals()
        self.further = [name for name, node in self.chain.tail_inputs.items() if node is not self.chain.source]

    def submodules(self) -> list[str]:
        return [f'{self.local[step.name]} = self._modules.get("{step.name}")' for step in self.owners]

    def kinds(self) -> str:
        """A tuple of (attribute, submodule, class) of each."""
        return as_tuple([f'("{step.name}", {self.local[step.name]}, {step.module})' for step in self.owners])

    def body(self) -> list[str]:
        return [
            *self._reads(),
            *self._sizes(),
            *self._dtypes(),
            *self._fit(),
            *self._groups(),
            *self._operands(),
            *self._variants(),
        ]

    # Names

    def _locals(self) -> dict[str, str]:
        """By submodule: the variable that holds it, beside the arguments of the ops."""
        taken = {argument.public for renderer in self.renderers for argument in renderer.forward().arguments}
        taken |= {tensor.name for tensor in self.chain.inputs} | set(self.chain.parameters)
        found: dict[str, str] = {}
        for step in self.owners:
            name = step.name
            while name in taken:
                name += "_module"
            taken.add(name)
            found[step.name] = name
        return found

    def _owner(self, attribute: str) -> tuple[str, str]:
        """The variable of the module that has the attribute, and its name there."""
        owner, _, name = attribute.rpartition(".")
        return (self.local[owner] if owner else "self"), name

    def _tensor(self, attribute: str) -> str:
        owner, name = self._owner(attribute)
        return f'_tensor({owner}, "{name}")'

    # What the module holds

    def _reads(self) -> list[str]:
        """Each parameter once, into a variable of the name that the ops' argument has."""
        lines = []
        if self.chain.contraction:
            c = self.chain.contraction
            lines.append(f"{c.weight} = {self._tensor(f'{c.name}.weight')}")
        return lines + [f"{p.name} = {self._tensor(p.attribute)}" for p in self.chain.parameters.values()]

    def _sizes(self) -> list[str]:
        """What the kernels take as the numbers of rows and channels. An input of another width fits nothing."""
        name, c = self.first, self.chain.contraction
        if c:
            lines = [
                *_refuse([f'_support.misfit_weight("{c.name}.weight", {c.weight})']),
                f"_channels, _width = {c.weight}.shape",
            ]
        else:
            lines = [f"_channels = {name}.shape[-1]"]
            width = self._width()
            if width is None:
                return lines
            lines = [f"_channels = _width = {width}"]
        lines += [
            f"if {name}.shape[-1] != _width:",
            f"    _came = list({name}.shape)",
            f'    raise ValueError(f"{{_package.name}}: {name} must be [*, {{_width}}], got {{_came}}")',
        ]
        return lines

    def _width(self) -> str | None:
        dim = self.chain.channels
        if isinstance(dim, int):
            return str(dim)
        parameter = next((p for p in self.chain.parameters.values() if CHANNEL <= p.axes), None)
        if parameter is None:
            return None
        return f"{self.first}.shape[-1] if {parameter.name} is None else {parameter.name}.shape[-1]"

    # Dtypes

    def _dtypes(self) -> list[str]:
        lines = [
            "_autocast = _support.is_autocast(_device)",
            "_modes = _AUTOCAST_MODES if _autocast else _MODES",
            f"_activation = {self.first}.dtype",
        ]
        if self.chain.contraction:
            lines += [
                "if _autocast and _activation != torch.float64:",
                "    _activation = torch.get_autocast_dtype(_device)",
            ]
        lines += [f"_parameter = {self._parameter_dtype()}"]
        key = ["_activation", "_parameter", *[f"{name}.dtype" for name in self.further[:1]]]
        lines += [
            f"_key = {as_tuple(key)}",
            "_mode = _modes.get(_key)",
            "if _mode is None:",
            "    return None, _support.no_mode(_modes, _key)",
        ]
        return lines

    def _parameter_dtype(self) -> str:
        """The dtype of the module: of the first parameter in the tail, else of the linear layer or of statistics."""
        names = list(self.chain.parameters)
        if names:
            return f"_activation if {names[0]} is None else {names[0]}.dtype"
        if self.chain.contraction:  # as it is before autocast
            return f"{self.chain.contraction.weight}.dtype"
        statistics = [b.attribute for b in self.chain.buffers.values() if not b.integer]
        if statistics:
            read = self._tensor(statistics[0])
            return f'getattr({read}, "dtype", _activation)'
        return "_activation"

    # What makes the module another one than the package was generated for

    def _fit(self) -> list[str]:
        checks: list[str] = []
        c = self.chain.contraction
        if c:
            checks.append(f'_support.misfit_operand("{c.name}.weight", {c.weight}, _activation, _autocast)')
        groups: dict[tuple[Dim, ...], list[tuple[str, str]]] = {}
        for p in self.chain.parameters.values():
            groups.setdefault(p.shape, []).append((p.attribute, p.name))
        checks += [_misfit(found, "_parameter", self._shape(shape)) for shape, found in groups.items()]
        if self.further:
            named = [(name, name) for name in self.further]
            checks.append(_misfit(named, f"{self.further[0]}.dtype", f"(*{self.first}.shape[:-1], _channels)"))
        checks += self._unexpected()
        norms = [self.local[step.name] for step in self.owners if step.op in ("layer_norm", "rms_norm")]
        return _refuse([*checks, *(f"_support.other_shape({norm}, _channels)" for norm in norms)])

    def _shape(self, shape: tuple[Dim, ...]) -> str:
        names = {self.chain.channels: "_channels", self.chain.rows: f"{self.first}.shape[0]"}
        return as_tuple([str(names.get(dim, dim)) for dim in shape])

    def _unexpected(self) -> list[str]:
        """Tensors that a submodule would read and the chain does not have."""
        known = {p.attribute for p in self.chain.parameters.values()}
        known |= {b.attribute for variant in self.plan.variants for b in variant.chain.buffers.values()}
        if self.chain.contraction:
            known.add(f"{self.chain.contraction.name}.weight")
        tracked = self._tracked()
        names = []
        for step in self.owners:
            for tensor in step.tensors:
                attribute = f"{step.name}.{tensor}"
                if attribute not in known and not (step.name in tracked and tensor == "num_batches_tracked"):
                    names.append(attribute)
        if not names:
            return []
        attributes = as_tuple([repr_double(name) for name in names])
        return [f"_support.unexpected({attributes}, {as_tuple([self._tensor(name) for name in names])})"]

    def _groups(self) -> list[str]:
        """Numbers of groups, which a user may change; PyTorch itself refuses those that do not divide."""
        norms = [step for step in self.owners if step.op == "group_norm"]
        if not norms:
            return []
        several = [step for step in norms if step.num_groups != 1]
        lines = []
        conditions = [f"type({self.local[step.name]}.num_groups) is not int" for step in norms]
        if several:
            lines.append(f"_groups = {self.local[several[0].name]}.num_groups")
            conditions.append("_groups < 1 or _channels % _groups")
            # One value a group.
            conditions.append(f"{self.first}.shape[0] == 1 and _groups == _channels")
        if any(step.num_groups == 1 for step in norms):
            conditions.append(f"{self.first}.shape[0] == 1 and _channels == 1")
        lines += ["if (", *(f"    {'or ' if i else ''}{text}" for i, text in enumerate(conditions)), "):"]
        lines.append("    return None, _support.REFUSED")
        others = [f"{self.local[step.name]}.num_groups != _groups" for step in several[1:]]
        others += [f"{self.local[step.name]}.num_groups != 1" for step in norms if step.num_groups == 1]
        if others:
            lines += [f"if {' or '.join(others)}:", "    return None, _support.OTHER_GROUPS"]
        return lines

    # The op

    def _operands(self) -> list[str]:
        """The operands of the matrix product, as autocast casts the arguments of F.linear."""
        c = self.chain.contraction
        if not c:
            return []
        return [
            f"{c.operand} = {self.first}",
            "if _autocast:",
            f"    {c.operand} = {c.operand}.to(_activation)",
            f"    {c.weight} = {c.weight}.to(_activation)",
        ]

    def _tracked(self) -> list[str]:
        """The batch norms that have running statistics; the others take the batch's in evaluation too."""
        return [name for name, tracked in self.chain.batch_norms if tracked]

    def _default_eps(self) -> list[str]:
        """An nn.RMSNorm may have no eps, or lose it later. PyTorch takes that of the dtype in which it computes."""
        lines = []
        for step in self.owners:
            if step.op == "rms_norm":
                lines += [
                    f"_{step.name}_eps = {self.local[step.name]}.eps",
                    f"if _{step.name}_eps is None:",
                    f"    _{step.name}_eps = torch.finfo(torch.float32).eps  # as F.rms_norm, in 16 bits too",
                ]
        return lines

    def _variants(self) -> list[str]:
        chain = self.chain
        lines = self._default_eps()
        norms = [step.name for step in self.owners if step.op == "rms_norm"]
        replaced = {chain.name_of(f"{name}.eps"): f"_{name}_eps" for name in norms}
        if not chain.batch_norms:
            return lines + self._apply(self.plan.variants[0], self.renderers[0], replaced, [])
        one_row = [f"if {self.first}.shape[0] == 1:", "    return None, _support.REFUSED"]
        tracked = self._tracked()
        if not tracked:
            return lines + one_row + self._apply(self.plan.variants[0], self.renderers[0], replaced, [])
        lines += one_row if len(tracked) < len(chain.batch_norms) else []
        statistics = []
        for name in tracked:
            for statistic in ("mean", "var"):
                attribute = f"{name}.running_{statistic}"
                lines.append(f"_{name}_{statistic} = {self._tensor(attribute)}")
                replaced[chain.name_of(attribute)] = f"_{name}_{statistic}"
                statistics.append((attribute, f"_{name}_{statistic}"))
            lines += [
                f"if (_{name}_mean is None) != (_{name}_var is None):",
                "    return None, _support.HALF_TRACKED",
            ]
        batch = [f"{self.local[name]}.training or _{name}_mean is None" for name in tracked]
        lines += ["# As nn.BatchNorm: the batch's statistics in training, and where there are no others."]
        if len(tracked) > 1:
            lines += ["_batch = (", *(f"    {text}," for text in batch), ")"]
            lines += ["if any(_batch) != all(_batch):", "    return None, _support.SOME_FROZEN"]
        lines.append("if not any(_batch):" if len(tracked) > 1 else f"if not ({batch[0]}):")
        evaluation = _refuse([_misfit(statistics, "_parameter", "(_channels,)")])
        evaluation += self._apply(self.plan.variants[1], self.renderers[1], replaced, [])
        lines += [f"    {line}" for line in evaluation]
        lines += one_row if len(tracked) == len(chain.batch_norms) else []
        before = []
        for name in tracked:
            norm = self.local[name]
            lines += [
                f"_{name}_momentum = {norm}.momentum",
                f"_{name}_cumulative = _{name}_momentum is None",
                f"if _{name}_cumulative:  # a cumulative average, by the count on the device",
                f"    _{name}_momentum = 0.0",
                *_refuse([f"_support.not_numbers(_{name}_momentum)"]),
                f"if _{name}_momentum < 0:",
                "    return None, _support.NEGATIVE_MOMENTUM",
                f"_{name}_batches = None",
                f"if {norm}.training and {norm}.track_running_stats:",
                f"    _{name}_batches = {self._tensor(f'{name}.num_batches_tracked')}",
                *(f"    {line}" for line in _refuse([_statistics(name)])),
                "else:",
                f"    _{name}_mean, _{name}_var = None, None",
            ]
            before += [
                f"if _{name}_cumulative and _{name}_batches is not None:",
                "    _" + f"{name}_momentum = -1.0  # to the kernels: by the count",
                "    if _count:",
                "        # All blocks of the kernels read it, so none of them may count.",
                f"        _{name}_batches.add_(1)",
            ]
            replaced |= {
                chain.name_of(f"{name}.num_batches_tracked"): f"_{name}_batches",
                chain.name_of(f"{name}.momentum"): f"_{name}_momentum",
            }
        return lines + self._apply(self.plan.variants[0], self.renderers[0], replaced, before)

    def _apply(self, variant: Variant, renderer: OpRenderer, replaced: dict[str, str], before: list[str]) -> list[str]:
        """before: statements once nothing can refuse the call any more."""
        # What the result depends on only behind a detach gets no gradient, and autograd must not ask for one.
        constant = {name for name, _, _ in renderer.sources()} - variant.gradients.keys()
        momenta = {self.chain.name_of(f"{name}.momentum") for name in self._tracked()}  # looked at before
        arguments, numbers = [], []
        for argument in renderer.forward().arguments:
            name = argument.public
            source = _OURS.get(name) or replaced.get(name) or self._source(name)
            if argument.cpp == "double" and name not in momenta:
                numbers.append(source)
            if name in constant:
                source = f"{source}.detach()"
            elif variant.chain.contraction and name == self.first:
                source = f"{source}.view_as({source})"  # torch.compile takes no tensor twice in one call
            arguments.append(source)
        lines = _refuse(preconditions(self.plan, variant, numbers, self.local))
        body = wrap(", ".join(arguments), _WIDTH - 20, 0).splitlines()
        return [
            *lines,
            *before,
            f"return _{variable(variant)}, (",
            *(f"    {line.strip()}" for line in body[:-1]),
            f"    {body[-1].strip()},",
            ")",
        ]

    def _source(self, name: str) -> str:
        """Where an argument of the forward op comes from."""
        chain = self.chain
        if name in chain.constants:
            owner, attribute = self._owner(chain.constants[name].attribute)
            return f"{owner}.{attribute}"
        tables = (chain.buffers, self.plan.variants[-1].chain.buffers)
        for table in tables:
            if name in table:
                return self._tensor(table[name].attribute)
        return name  # an input, a parameter or an operand


def _misfit(tensors: list[tuple[str, str]], dtype: str, shape: str) -> str:
    """What refuses tensors, each an attribute and a variable, of another dtype or shape."""
    attributes = as_tuple([repr_double(attribute) for attribute, _ in tensors])
    return f"_misfit({attributes}, {as_tuple([name for _, name in tensors])}, {dtype}, {shape})"


def _statistics(name: str) -> str:
    """What refuses the buffers that a batch norm in training writes."""
    buffers = ", ".join(f"_{name}_{part}" for part in ("mean", "var", "batches"))
    return f'_support.misfit_statistics("{name}", {buffers}, _parameter, _channels)'


def _refuse(checks: list[str]) -> list[str]:
    """Statements that return the first reason of some expressions."""
    if not checks:
        return []
    wrapped = [wrap(check, _WIDTH - 20, 4).splitlines() for check in checks]
    if len(checks) == 1:
        lines = [f"_why = {wrapped[0][0]}", *wrapped[0][1:]]
    else:
        lines = ["_why = ("]
        for index, (first, *others) in enumerate(wrapped):
            lines += [f"    {'or ' if index else ''}{first}", *(f"    {line}" for line in others)]
        lines.append(")")
    return [*lines, "if _why:", "    return None, _why"]
