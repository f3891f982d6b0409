"""__init__.py of a generated package: the nn.Module around the ops."""

from __future__ import annotations

from dataclasses import dataclass

from fusegen.ir.extent import ALL
from fusegen.ir.names import OP_NAMES
from fusegen.ops.step import Step
from fusegen.plan.model import Variant
from fusegen.plan.modes import VERIFICATION_DTYPE
from fusegen.plan.plan import Plan
from fusegen.render.cuda import chain_lines
from fusegen.render.environment import render, wrap
from fusegen.render.functions import as_tuple, function_name, roles, variant_text
from fusegen.render.operators import OpRenderer
from fusegen.render.original import construct, reference, signature
from fusegen.render.types import TORCH, type_roles

_SUBMODULES = {
    "linear": "nn.Linear",
    "batch_norm": "nn.BatchNorm1d",
    "group_norm": "nn.GroupNorm",
    "layer_norm": "nn.LayerNorm",
    "rms_norm": "nn.RMSNorm",
}


@dataclass(frozen=True)
class ModeText:
    index: int
    key: list[str]
    autocast: bool
    plain: bool


def render_module(plan: Plan) -> str:
    """The text of __init__.py."""
    return ModuleRenderer(plan).render()


class ModuleRenderer:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.spec, self.chain = plan, plan.spec, plan.chain
        self.renderers = [OpRenderer(plan, variant) for variant in plan.variants]
        self.first = self.chain.inputs[0].name
        self.steps = plan.spec.chain
        self.local = self._locals()

    def render(self) -> str:
        plan, chain, spec = self.plan, self.chain, self.spec
        operands = self._operands()
        mode_names = ["activations", "parameters", *(["inputs"] if self._further_inputs() else [])]
        eager = reference(spec, chain)
        reads, dispatch = self._reads(), self._dispatch()
        groups = [as_tuple(texts) for texts in self._mode_groups()]
        return render(
            "module.py.j2",
            name=spec.name,
            about=spec.about.rstrip("."),
            formula=chain_lines(plan),
            class_name=spec.class_name,
            uses_functional=any("F." in line for line in eager),
            modes=self._modes(),
            dtypes=[as_tuple([TORCH[mode.roles[r]] for r in type_roles(mode.roles)]) for mode in plan.modes],
            roles=roles(plan),
            variants=[variant_text(plan, v, r) for v, r in zip(plan.variants, self.renderers, strict=True)],
            operand=bool(operands),
            signature=["self", *signature(spec)],
            construct=construct(spec, chain, eager),
            eager=eager,
            shape_arguments=any(argument.type == "shape" for argument in spec.arguments.values()),
            inputs=self._further_inputs(),
            inputs_all=[tensor.name for tensor in chain.inputs],
            first=self.first,
            submodules=self._submodules(),
            plain=[f"_is_plain({self.local[step.name]}, {_SUBMODULES[step.op]})" for step in self._owners()],
            reads=reads,
            reads_parameters=any("_parameter(" in line for line in reads + groups),
            reads_buffers=any("_buffer(" in line for line in reads + groups + dispatch),
            width=self._width(),
            operand_values=[name for name, _ in operands],
            mode_arguments=groups,
            mode_parameters=mode_names,
            mode_keys=self._mode_keys(mode_names),
            mode_groups=mode_names,
            dispatch=dispatch,
        )

    # Dtypes

    def _further_inputs(self) -> list[str]:
        return [name for name, node in self.chain.tail_inputs.items() if node is not self.chain.source]

    def _modes(self) -> list[ModeText]:
        found = []
        for mode in self.plan.modes:
            if mode.roles["activation"] == VERIFICATION_DTYPE:
                continue
            roles = ["activation", "parameter", *[f"input {name}" for name in self._further_inputs()[:1]]]
            key = [TORCH[mode.roles[role]] for role in roles]
            found.append(ModeText(mode.index, key, mode.autocast, mode.plain))
        return found

    def _mode_groups(self) -> list[list[str]]:
        """Expressions of the tensors that must share a dtype: activations, parameters, further inputs."""
        chain = self.chain
        activations = [name for name, _ in self._operands()] or [self.first]
        parameters = list(chain.parameters)
        if not parameters:
            # Nothing in the tail is learnt; the module's dtype is that of the contraction, or of running statistics.
            parameters = [self._read("_buffer", b.attribute) for b in chain.buffers.values() if not b.integer]
            if chain.contraction:  # as it is before autocast
                parameters = [self._read("_parameter", f"{chain.contraction.name}.weight")]
            parameters = parameters or activations
        further = self._further_inputs()
        return [activations, parameters, *([further] if further else [])]

    @staticmethod
    def _mode_keys(names: list[str]) -> list[str]:
        return [f"{name}[0].dtype" for name in names]

    # The forward method

    def _operands(self) -> list[tuple[str, str]]:
        """The contraction's operands: the local name and where it comes from."""
        contraction = self.chain.contraction
        if not contraction:
            return []
        weight = self._read("_parameter", f"{contraction.name}.weight")
        return [(contraction.operand, self.first), (contraction.weight, weight)]

    def _width(self) -> str:
        if self.chain.contraction:
            return f"{self.chain.contraction.weight}.shape[1]"
        dim = self.chain.channels
        if isinstance(dim, int):
            return str(dim)
        parameter = next((p for p in self.chain.parameters.values() if p.extent.blocks == ALL), None)
        return f"{parameter.name}.shape[-1]" if parameter else f"{self.first}.shape[1]"

    def _owners(self) -> list[Step]:
        """The steps that are submodules."""
        return [step for step in self.steps if step.op in _SUBMODULES]

    def _locals(self) -> dict[str, str]:
        """By submodule: the variable that holds it in `forward`, beside the arguments of the ops."""
        taken = {name for renderer in self.renderers for name in self._forward_arguments(renderer)}
        taken |= {tensor.name for tensor in self.chain.inputs} | OP_NAMES
        taken |= {f"{name}_{part}" for name in self._tracked() for part in ("mean", "var", "batches")}
        found: dict[str, str] = {}
        for step in self._owners():
            name = step.name
            while name in taken:
                name += "_module"
            taken.add(name)
            found[step.name] = name
        return found

    def _submodules(self) -> list[str]:
        return [f'{self.local[step.name]} = self._modules.get("{step.name}")' for step in self._owners()]

    def _reads(self) -> list[str]:
        """Each parameter once, into a variable of the name that the ops' argument has."""
        found = list(self._operands())
        found += [(p.name, self._read("_parameter", p.attribute)) for p in self.chain.parameters.values()]
        return [f"{name} = {source}" for name, source in found]

    def _read(self, kind: str, attribute: str) -> str:
        """A parameter or buffer of the module or of a submodule."""
        owner, _, name = attribute.rpartition(".")
        return f'{kind}({self.local[owner] if owner else "self"}, "{name}")'

    def _tracked(self) -> list[str]:
        """The batch norms that have running statistics; the others take the batch's in evaluation too."""
        return [name for name, tracked in self.chain.batch_norms if tracked]

    def _dispatch(self) -> list[str]:
        return [*self._one_value_a_group(), *self._default_eps(), *self._dispatch_variants()]

    def _one_value_a_group(self) -> list[str]:
        name = next((step.name for step in self.steps if step.op == "group_norm"), None)
        if name is None:
            return []
        norm = self.local[name]
        inputs = ", ".join(tensor.name for tensor in self.chain.inputs)
        return [
            f"if {self.first}.shape[0] == 1 and {norm}.num_groups == {norm}.num_channels:",
            f"    return self.reference({inputs})  # raises nn.GroupNorm's error",
        ]

    def _default_eps(self) -> list[str]:
        """An nn.RMSNorm may have no eps, or lose it later. PyTorch takes that of the dtype in which it computes."""
        lines = []
        for name in self._rms_norms():
            lines += [
                f"{name}_eps = {self.local[name]}.eps",
                f"if {name}_eps is None:",
                f"    {name}_eps = torch.finfo(torch.float32).eps  # as F.rms_norm, in 16 bits too",
            ]
        return lines

    def _rms_norms(self) -> list[str]:
        return [step.name for step in self.steps if step.op == "rms_norm"]

    def _dispatch_variants(self) -> list[str]:
        chain = self.chain
        if not chain.batch_norms:
            return self._apply(self.plan.variants[0], self.renderers[0], {})
        reference = f"return self.reference({', '.join(tensor.name for tensor in chain.inputs)})"
        one_row = [f"if {self.first}.shape[0] == 1:", f"    {reference}  # raises nn.BatchNorm1d's error"]
        tracked = self._tracked()
        if not tracked:
            return one_row + self._apply(self.plan.variants[0], self.renderers[0], {})
        lines = one_row if len(tracked) < len(chain.batch_norms) else []
        replaced: dict[str, str] = {}
        for name in tracked:
            for statistic in ("mean", "var"):
                lines.append(f"{name}_{statistic} = {self._read('_buffer', f'{name}.running_{statistic}')}")
                replaced[f"{name}_running_{statistic}"] = f"{name}_{statistic}"
        batch = [f"{self.local[name]}.training or {name}_mean is None" for name in tracked]
        lines += ["# As nn.BatchNorm: the batch's statistics in training, and where there are no others."]
        if len(tracked) > 1:
            lines += ["batch = (", *(f"    {text}," for text in batch), ")"]
            lines += ["if any(batch) != all(batch):  # some frozen: no kernel for the mixture", f"    {reference}"]
        lines.append("if not any(batch):" if len(tracked) > 1 else f"if not ({batch[0]}):")
        lines += [f"    {line}" for line in self._apply(self.plan.variants[1], self.renderers[1], replaced)]
        lines += one_row if len(tracked) == len(chain.batch_norms) else []
        for name in tracked:
            lines += [
                f"{name}_momentum = {self.local[name]}.momentum",
                f"if {name}_momentum is not None and {name}_momentum < 0:",
                f"    {reference}  # to the kernels that would mean a cumulative average",
            ]
        for name in tracked:
            norm = self.local[name]
            lines += [
                f"{name}_batches = None",
                f"if {norm}.training and {norm}.track_running_stats:",
                f"    {name}_batches = {self._read('_buffer', f'{name}.num_batches_tracked')}",
                "else:",
                f"    {name}_mean, {name}_var = None, None",
                f"if {name}_momentum is None:  # a cumulative average, by the count on the device",
                f"    {name}_momentum = 0.0",
                f"    if {name}_batches is not None:",
                "        # All blocks of the kernels read it, so none of them may count.",
                f"        {name}_batches.add_(1)",
                f"        {name}_momentum = -1.0",
            ]
            replaced |= {
                f"{name}_num_batches_tracked": f"{name}_batches",
                f"{name}_momentum": f"{name}_momentum",
            }
        return lines + self._apply(self.plan.variants[0], self.renderers[0], replaced)

    def _apply(self, variant: Variant, renderer: OpRenderer, replaced: dict[str, str]) -> list[str]:
        arguments = []
        local = {f"{name}_eps" for name in self._rms_norms()}
        # What the result depends on only behind a detach gets no gradient, and autograd must not ask for one.
        constant = {name for name, _, _ in renderer.sources()} - {
            t.name.removeprefix("grad_") for t in variant.backward.outputs
        }
        op = renderer.forward()
        for name in self._forward_arguments(renderer):
            source = name if name in local else replaced.get(name) or self._source(name)
            if name in constant:
                source = f"{source}.detach()"
            elif variant.chain.contraction and name == self.first:
                source = f"{source}.view_as({source})"  # torch.compile takes no tensor twice in one call
            arguments.append(source)
        text = wrap(", ".join(arguments), 80, 0).splitlines()
        body = [line.strip() for line in text]
        result = "[0]" if len(op.returns) > 1 else ""
        return [
            "arguments = (",
            *(f"    {line}" for line in body),
            ")",
            "if _IN_CPP or not _autograd_sees():",
            f"    return _{op.function}(*arguments){result}",
            f"return {function_name(variant)}.apply(*arguments)",
        ]

    def _source(self, name: str) -> str:
        chain = self.chain
        operands = [operand for operand, _ in self._operands()]
        inputs = {tensor.name for tensor in chain.inputs}
        if name in operands or name == "dtype_mode" or name in inputs or name in chain.parameters:
            return name
        if name == "groups":
            groups = next(count for count in chain.group_counts if count != 1)
            norm = next(step for step in self.steps if step.op == "group_norm" and step.num_groups == groups)
            return f"{self.local[norm.name]}.num_groups"
        if name in chain.constants:
            owner, _, attribute = chain.constants[name].attribute.rpartition(".")
            return f"{self.local[owner] if owner else 'self'}.{attribute}"
        tables = (chain.buffers, self.plan.variants[-1].chain.buffers)
        return self._read("_buffer", next(table[name].attribute for table in tables if name in table))

    def _forward_arguments(self, renderer: OpRenderer) -> list[str]:
        return [argument.name for argument in renderer.forward().arguments]
