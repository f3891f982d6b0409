"""The backward op of a variant: the kernels, then the contraction's two products."""

from __future__ import annotations

from collections.abc import Mapping

from fusegen.plan.model import Program, Same, Tensor
from fusegen.render.op import OPTIONAL, TENSOR, Argument, Op, arg, dtype_field, out, read
from fusegen.render.spelling import spell
from fusegen.render.variant_ops import VariantOps


class BackwardOp(VariantOps):
    """Renders it."""

    def op(self) -> Op:
        chain, program = self.chain, self.variant.backward
        op = self.start("backward", program)
        op.arguments += [Argument(name, *TENSOR) for name in self.variant.result_gradients]
        c = chain.contraction
        if c:
            op.arguments += [Argument(c.operand, *OPTIONAL), Argument(c.weight, *OPTIONAL)]
        op.arguments += [Argument(t.name, *TENSOR) for t in self.backward_inputs()]
        op.first = self.variant.result_gradient
        self.add_numbers(op, program.constants)
        op.needs = self.needs()
        op.arguments.append(Argument("needs", "const std::vector<bool>&", "bool[]", ours=True))
        self.declare_sizes(op, "gradient")
        shapes = self.shapes()
        roles = [("output", chain.result.of_rows)]
        roles += [(each.tensor.role, not each.tensor.is_full) for each in self.variant.further]
        for name, (role, of_rows) in zip(self.variant.result_gradients, roles, strict=True):
            if of_rows:
                op.checks.append(read(name, f"dtypes.{dtype_field(role)}", "{rows, 1}"))
            else:
                op.checks.append(self.read_input(name, role, (chain.rows, chain.channels)))
        self.check_rows(op)
        self._check_sums(op, program)
        self.check_samples(op)
        self.check_groups(op)
        for tensor in self.backward_inputs():
            shape = shapes.get(tensor.name)
            if shape is None and tensor.is_full and tensor.name in self.variant.results:
                shape = (chain.rows, chain.channels)
            expected = self.given_text(tensor.name, shape) if shape is not None else self.sizes_text(tensor)
            if tensor.role == "index":
                expected = "{rows}"
            op.checks.append(read(tensor.name, self.dtype_text(tensor), expected))
        self._backward_body(op, program)
        self.add_schema(op, "Tensor[]")
        return op

    def _check_sums(self, op: Op, program: Program) -> None:
        """All inputs whose gradients are sums of samples have as many rows."""
        first, *others = [f"{name}_rows" for name in program.samples] or [""]
        op.samples = first
        op.checks += [f'args.within("{name}", {name}, {first}, {first});' for name in others]

    def _product_wanted(self, index: Mapping[str, int], tensor: Tensor) -> str:
        """C++: whether a tensor has to be made for the gradient of the product. The op may have it already, as the
        gradient of a result or of an input."""
        c, same = self.chain.contraction, tensor.same_as
        assert c is not None
        wanted = f"needs[{index[c.operand]}] || needs[{index[c.weight]}]"
        if same is None:
            return wanted
        there = f"dtypes.{dtype_field(same.role)} == {self.dtype_text(tensor)}"
        if same.name not in self.variant.result_gradients:
            (owner,) = (name for name, other in self.variant.gradients.items() if other.name == same.name)
            there = f"(needs[{index[owner]}] && {there})"
            return f"({wanted}) && !{there}"
        return f"({wanted}) && {there.replace('==', '!=')}"

    def _same(self, same: Same) -> str:
        """C++: the tensor, which the op was given or has made."""
        return spell(same.name, "in") if same.name in self.variant.result_gradients else out(same.name)

    def _guard(self, program: Program) -> str:
        """C++: whether there is something to write; empty where there always is."""
        c = self.chain.contraction
        same = self.variant.gradients[c.result].same_as if c else None
        if same is None or same.name not in self.variant.result_gradients:
            return ""
        return " || ".join(out(tensor.name) for tensor in program.made)

    def backward_inputs(self) -> list[Tensor]:
        """What the backward op takes besides the results' gradients and the contraction's operands."""
        return [t for t in self.variant.backward.given if t.name not in self.variant.result_gradients]

    def _backward_body(self, op: Op, program: Program) -> None:
        c = self.chain.contraction
        index = {name: i for i, name in enumerate(op.needs)}
        shapes = {name: shape for name, _, shape in self.sources() if name not in self.chain.compact}
        for tensor in program.made:
            name = tensor.gradient_of
            wanted = f"needs[{index[name]}]" if name in index else self._product_wanted(index, tensor)
            expected = self.given_text(name, shapes[name]) if name in shapes else self.sizes_text(tensor)
            made = f"glue::empty_if({wanted}, {op.like}, {self.dtype_text(tensor)}, {expected})"
            op.allocations.append(f"const auto {out(tensor.name)} = {made};")
        op.launched = self.launched(program, set())
        op.guard = self._guard(program)
        op.results.append("std::vector<Tensor> gradients;")
        if c:
            of_product = self.variant.gradients[c.result]
            grad = f"*{out(of_product.name)}"
            if of_product.same_as is not None:
                grad = f"glue::either({out(of_product.name)}, {self._same(of_product.same_as)})"
            if self.plan.has_precisions:
                op.allocations.append(self.products())
                of_operand = f"products.input_gradient({grad}, weight, weight_pieces)"
                of_weight = f"products.weight_gradient({grad}, operand, operand_pieces)"
            else:
                of_operand, of_weight = f"glue::mm({grad}, weight)", f"glue::mm(glue::transposed({grad}), operand)"
            op.results += [
                "workspace.reset();  // the products may have its memory: they come later in the stream",
                f"if (needs[{index[c.operand]}]) {{",
                f'  const Tensor& weight = args.required("{c.weight}", {arg(c.weight)});',
                f"  gradients.push_back({of_operand});",
                "}",
                f"if (needs[{index[c.weight]}]) {{",
                f'  const Tensor& operand = args.required("{c.operand}", {arg(c.operand)});',
                f"  gradients.push_back({of_weight});",
                "}",
            ]
        others = [self.variant.gradients[name] for name in op.needs if name in self.variant.gradients]
        for tensor in others:
            name, reach = out(tensor.name), self.chain.compact.get(tensor.gradient_of)
            found = f"*{name}"
            if reach is not None and not tensor.samples:
                again = "true" if reach.rows == "last" else "false"
                given = tensor.gradient_of
                dtype = f"dtypes.{dtype_field(f'input {given}')}"
                found = f"glue::sum_of_rows(*{name}, {dtype}, {given}_rows, /*again=*/{again})"
            op.results.append(f"if ({name}) gradients.push_back({found});")
        op.results.append("return gradients;")
        self.declare_bias(op, program)
