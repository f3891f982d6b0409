"""The method of a generated module that decides a call: the op and its arguments, or why PyTorch's operators run.

Names of the spec are local variables there; all others begin with an underscore, which no name of a spec does.
"""

from __future__ import annotations

from fusegen.ops.step import Step
from fusegen.plan.plan import Plan
from fusegen.render import call_inputs
from fusegen.render.call_fit import groups_fit, tensors_fit
from fusegen.render.call_names import WIDTH, CallNames, misfit, refuse
from fusegen.render.call_norms import TrackedNorms
from fusegen.render.environment import wrap
from fusegen.render.functions import as_tuple, variable
from fusegen.render.operators import OpRenderer
from fusegen.render.preconditions import preconditions

# Arguments that are none of the chain's. Pieces are made where the call is.
_OURS = {"_dtype_mode": "_mode", "_channels": "_channels", "_groups": "_groups", "_precision": "_precision"}
_OURS |= {"_operand_pieces": "None", "_weight_pieces": "None"}


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
            *call_inputs.operands(names),
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
        chain, norms = self.chain, TrackedNorms(self.names)
        lines = self._default_eps()
        eps = [step.name for step in self.names.owners if step.op == "rms_norm"]
        replaced = {chain.name_of(f"{name}.eps"): f"_{name}_eps" for name in eps}
        single = "_support.has_no_variance(_shape)" if chain.convolution else f"{self.names.first}.shape[0] == 1"
        one_row = [f"if {single}:", "    return None, _support.REFUSED"]
        if not norms.names:
            return lines + (one_row if chain.batch_norms else []) + self._apply(0, replaced, [])
        untracked = len(norms.names) < len(chain.batch_norms)
        lines += one_row if untracked else []
        statistics = norms.statistics()
        replaced |= {chain.name_of(attribute): name for attribute, name in statistics.items()}
        evaluation = refuse([misfit(list(statistics.items()), "_parameter", "(_channels,)")])
        evaluation += self._apply(1, replaced, [])
        lines += [*norms.reads(), *norms.frozen(), *(f"    {line}" for line in evaluation)]
        lines += [] if untracked else one_row
        replaced |= {chain.name_of(attribute): name for attribute, name in norms.moved().items()}
        return [*lines, *norms.momenta(), *self._apply(0, replaced, norms.counts())]

    def _apply(self, index: int, replaced: dict[str, str], before: list[str]) -> list[str]:
        """Calls the op of a variant. replaced: arguments that have other variables. before: statements once nothing can
        refuse the call any more."""
        variant, renderer = self.plan.variants[index], self.renderers[index]
        # What the result depends on only through a detach gets no gradient, and autograd must not ask for one.
        constant = {name for name, _, _ in renderer.sources()} - variant.gradients.keys()
        momenta = {self.chain.name_of(f"{name}.momentum") for name in self.names.tracked()}  # looked at before
        arguments, numbers = [], []
        for argument in renderer.forward().arguments:
            name = argument.public
            source = _OURS.get(name) or replaced.get(name) or self._source(name)
            if argument.cpp == "double" and name not in momenta:
                numbers.append(source)
            if name in constant:
                source = f"{source}.detach()"
            elif variant.chain.contraction and name == self.names.first:
                source = f"{source}.view_as({source})"  # torch.compile takes no tensor twice in one call
            arguments.append(source)
        lines = refuse(preconditions(self.plan, variant, numbers, self.names.local))
        body = wrap(", ".join(arguments), WIDTH - 20, 0).splitlines()
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
            owner, attribute = self.names.owner(chain.constants[name].attribute)
            return f"{owner}.{attribute}"
        if name in chain.parameters and chain.parameters[name].repeated:
            return f"{name}.repeat(_groups)"
        if name in chain.targets:
            return f"{name}.flatten()"
        tables = (chain.buffers, self.plan.variants[-1].chain.buffers)
        for table in tables:
            if name in table:
                return self.names.tensor(table[name].attribute)
        return name  # an input, a parameter or an operand
