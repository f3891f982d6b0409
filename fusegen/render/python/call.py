"""The method of a generated module that decides a call: the op and its arguments, or why PyTorch's operators run.

Names of the spec are local variables there; all others begin with an underscore, which no name of a spec does.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from fusegen.ops.step import Step
from fusegen.plan.modules.plan import Plan
from fusegen.render.ops.functions import as_tuple, variable
from fusegen.render.ops.operators import OpRenderer
from fusegen.render.python import call_inputs, call_ranks
from fusegen.render.python.call_dropouts import Dropouts
from fusegen.render.python.call_fit import groups_fit, tensors_fit
from fusegen.render.python.call_names import WIDTH, CallNames, refuse
from fusegen.render.python.call_norms import TrackedNorms
from fusegen.render.python.call_shapes import spread_inputs
from fusegen.render.python.preconditions import preconditions
from fusegen.render.text.environment import wrap

# Arguments that are none of the chain's. Pieces are made where the call is.
_OURS = {"_dtype_mode": "_mode", "_channels": "_channels", "_groups": "_groups", "_precision": "_precision"}
_OURS |= {"_operand_pieces": "None", "_weight_pieces": "None", "_windows": "_windows"}
_OURS |= {"_rows": "_support.row_count(_shape)", "_positions": "0"}  # which a call on contiguous images replaces


class CallRenderer:
    def __init__(self, plan: Plan, renderers: list[OpRenderer]) -> None:
        self.names, self.plan, self.chain, self.renderers = CallNames(plan, renderers), plan, plan.chain, renderers

    def submodules(self) -> list[str]:
        names = self.names
        return [f'{names.local[step.name]} = self._modules.get("{step.name}")' for step in names.owners]

    def kinds(self) -> str:
        """A tuple of (attribute, submodule, class) of each."""
        names = self.names
        return as_tuple([f'("{step.name}", {names.local[step.name]}, {self._class(step)})' for step in names.owners])

    def _class(self, step: Step) -> str:
        return step.submodule(self.chain.spatial)

    def body(self) -> list[str]:
        names = self.names
        return [
            *call_inputs.parameters(names),
            *call_inputs.sizes(names),
            *call_inputs.dtypes(names),
            *tensors_fit(names),
            *groups_fit(names),
            *call_inputs.windows(names),
            *call_inputs.operands(names),
            *spread_inputs(names),
            *self._variants(),
        ]

    def _default_eps(self) -> list[str]:
        """An nn.RMSNorm may have no eps, or lose it later. PyTorch takes that of the dtype in which it computes."""
        lines = []
        for step in self.names.owners:
            if step.op == "rms_norm":
                lines += [
                    f"_{step.name}_eps = {self.names.local[step.name]}.eps",
                    f"if _{step.name}_eps is None:",
                    f"    _{step.name}_eps = torch.finfo(torch.float32).eps  # as F.rms_norm, in 16 bits too",
                ]
        return lines

    def _variants(self) -> list[str]:
        chain, norms, dropouts = self.chain, TrackedNorms(self.names), Dropouts(self.names)
        lines = [*self._default_eps(), *dropouts.reads()]
        eps = [step.name for step in self.names.owners if step.op == "rms_norm"]
        replaced = {chain.name_of(f"{name}.eps"): f"_{name}_eps" for name in eps} | dropouts.arguments()
        single = "_support.has_no_variance(_shape)" if chain.spatial else f"{self.names.first}.shape[0] == 1"
        one_row = [f"if {single}:", "    return None, _support.ONE_ROW"]
        if not norms.names:
            lines += self._over_ranks(replaced, norms)
            lines += one_row if chain.batch_norms else []
            if dropouts.shares:
                evaluation = [f"    {line}" for line in self._apply(1, replaced, [])]
                lines += ["# As nn.Dropout: nothing is drawn where nothing is dropped."]
                lines += [f"if {dropouts.all_kept()}:", *evaluation]
            return lines + self._apply(0, replaced, dropouts.draws())
        untracked = len(norms.names) < len(chain.batch_norms)
        lines += one_row if untracked else []
        ranks = self.plan.sync_batch_norm is not None  # where one row of each is enough
        lacks = "_support.has_no_variance, _shape" if chain.spatial else f"_support.is_one_row, {self.names.first}"
        lines += norms.reads("None, None" if untracked or ranks else lacks)
        replaced |= {chain.name_of(attribute): name for attribute, name in norms.statistics().items()}
        evaluation = []
        if dropouts.shares:
            evaluation = [f"if not ({dropouts.all_kept()}):", "    return None, _support.DROPS_FROZEN"]
        evaluation += self._apply(1, replaced, [])
        lines += ["if _is_frozen:", *(f"    {line}" for line in evaluation)]
        replaced |= {chain.name_of(attribute): name for attribute, name in norms.moved().items()}
        if ranks:
            lines += [*self._over_ranks(replaced, norms), *one_row]
        return [*lines, *self._apply(0, replaced, dropouts.draws())]

    def _apply(self, index: int, replaced: dict[str, str], before: list[str]) -> list[str]:
        """Calls the op of a variant. replaced: arguments that have other variables. before: statements once nothing can
        refuse the call any more."""
        variant, renderer = self.plan.variants[index], self.renderers[index]
        given = [argument.name for argument in renderer.forward().arguments]
        arguments, numbers = self._arguments(renderer, given, variant.gradients, replaced)
        lines = refuse(preconditions(self.plan, variant, numbers, self.names.local))
        return [*lines, *before, *_returned(variable(variant), arguments)]

    def _over_ranks(self, replaced: dict[str, str], norms: TrackedNorms) -> list[str]:
        """The branch of a call whose norm takes the statistics of all ranks."""
        ranks = self.plan.sync_batch_norm
        if ranks is None:
            return []
        renderer, c, norm = OpRenderer(self.plan, ranks.variant), self.chain.contraction, ranks.norm
        of_ranks = (norm.mean.name, norm.variance.name)
        given = [argument.name for argument in renderer.forward().arguments if argument.name not in of_ranks]
        if c:  # the product is made in front of the op
            given[:1] = [c.operand, c.weight]
        arguments, numbers = self._arguments(renderer, given, call_ranks.differentiated(ranks), replaced)
        lines = [
            *call_ranks.refusals(self.names),
            *refuse(preconditions(self.plan, ranks.variant, numbers, self.names.local)),
            f"_exchange = _support.Ranks(_group, {norms.exchanged(norm.name)})",
            *_returned(ranks.variant.name, [*arguments, "_exchange"]),
        ]
        head = [f"_group = _support.group_of({self.names.local[norm.name]})", "if _group is not None:"]
        return [*head, *(f"    {line}" for line in lines)]

    def _arguments(
        self, renderer: OpRenderer, given: Sequence[str], gradients: Container[str], replaced: dict[str, str]
    ) -> tuple[list[str], list[str]]:
        """The op's arguments as expressions, and those of them that are numbers and have not been looked at."""
        variant, contraction = renderer.variant, renderer.variant.chain.contraction
        # What the result depends on only through a detach gets no gradient, and autograd must not ask for one.
        constant = {name for name, _, _ in renderer.sources() if name not in gradients}
        seen = {self.chain.name_of(f"{name}.momentum") for name in self.names.tracked()}
        numeric = {argument.name for argument in renderer.forward().arguments if argument.kind == "number"}
        arguments, numbers = [], []
        counts = {f"_{name}_rows": f"{name}.shape[0]" for name in self.chain.compact}
        counts["_samples"] = f"{self.names.first}.shape[0]"
        for name in given:
            source = _OURS.get(name) or counts.get(name) or replaced.get(name) or self._source(name)
            if name in numeric - seen:
                numbers.append(source)
            if name in constant:
                source = f"{source}.detach()"
            elif contraction and name == self.names.first:
                source = f"{source}.view_as({source})"  # torch.compile takes no tensor twice in one call
            if name == variant.chain.source.name and variant.chain.has_own_images:
                source = f"_support.Pictured({source})"
            elif contraction and variant.chain.is_over_channels and name == contraction.operand:
                source = f"_support.Multiplicand({source})"
            arguments.append(source)
        return arguments, numbers

    def _source(self, name: str) -> str:
        """Where an argument of the forward op comes from."""
        chain = self.chain
        if name in chain.constants:
            owner, attribute = self.names.owner(chain.constants[name].attribute)
            return f"{owner}.{attribute}"
        if name in chain.parameters and chain.parameters[name].repeated:
            return f"{name}.repeat(_groups)"
        if chain.trailing and name == chain.source.name:
            return f"_support.Flattened({name}, _trailing)"
        if name in chain.parameters and chain.parameters[name].trailing:
            whole = chain.parameters[name].shape == chain.trailing
            return f"{name}.flatten()" if whole else f"_support.flat_parameter({name}, _trailing)"
        if name in chain.targets:
            return f"{name}.flatten()"
        tables = (chain.buffers, self.plan.variants[-1].chain.buffers)
        for table in tables:
            if name in table:
                return self.names.tensor(table[name].attribute)
        return name  # an input, a parameter or an operand


def _returned(operator: str, arguments: Sequence[str]) -> list[str]:
    """The statement that returns an operator and its arguments."""
    body = wrap(", ".join(arguments), WIDTH - 20, 0).splitlines()
    return [
        f"return _{operator}, (",
        *(f"    {line.strip()}" for line in body[:-1]),
        f"    {body[-1].strip()},",
        ")",
    ]
