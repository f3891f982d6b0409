"""Dtypes and roles as C++ types."""

from __future__ import annotations

from fusegen.chain.result import Pool
from fusegen.plan.programs.model import Role, Tensor
from fusegen.render.text.identifiers import identifier

DTYPES = {
    "float32": "Dtype::kFloat32",
    "bfloat16": "Dtype::kBFloat16",
    "float16": "Dtype::kFloat16",
    "float64": "Dtype::kFloat64",
}
TORCH = {
    "float32": "torch.float32",
    "bfloat16": "torch.bfloat16",
    "float16": "torch.float16",
    "float64": "torch.float64",
}
_FIXED = {"activation": "T", "output": "Out", "parameter": "Param", "accumulator": "Acc"}
_FIXED |= {"count": "int64_t", "index": "int64_t", "mask": "Mask", "tap": "Tap"}


def type_parameter(role: Role) -> str:
    """The template parameter (or type) that stands for a role in emitted code."""
    return _FIXED.get(role) or identifier(role.removeprefix("input ").removeprefix("output "), "type")


def element_type(tensor: Tensor) -> str:
    """The template parameter (or type) of a tensor's elements. A bias that the library adds in 16 bits is read in
    float32 and float64 alone, where parameters have the dtype of activations."""
    return type_parameter("activation" if tensor.in_product else tensor.role)


def field_type(tensor: Tensor) -> str:
    """The type of a field of Reads or Writes: where a tensor is a part of another, or has fewer rows than the program,
    it tells where rows lie."""
    element = element_type(tensor)
    if tensor.compact:
        return f"Spread<{element}, {'true' if tensor.compact == 'last' else 'false'}>"
    return element if tensor.part is None else f"Part<{element}, {tensor.part.count}>"


def address(tensor: Tensor, kind: str) -> str:
    """The initialiser of a pointer to a tensor, from its launcher's argument. kind: "from" or "to"."""
    part, argument = tensor.part, f"a->{identifier(tensor.whole.name, 'arg')}"
    if tensor.compact:
        return f"spread_from({argument}, a->{identifier(tensor.name, 'own')}, *this)"
    if part is None or not part.index:
        return f"{kind}({argument})"
    return f"{kind}({argument}, {'' if part.index == 1 else f'{part.index} * '}channels)"


def type_roles(roles: dict[Role, str]) -> list[Role]:
    """The roles that are template parameters, in the order of the parameter list."""
    named = sorted(role for role in roles if role.startswith(("input ", "output ")))
    return ["activation", "output", "parameter", *named]


def pooling(pool: Pool) -> str:
    """What kernels make of a window."""
    return f"Pooling::{'kMax' if pool.largest else 'kMean'}"


def pointer(tensor: Tensor) -> str:
    if tensor.role == "draw":
        return f"SampleFactors<Acc>{{{identifier(tensor.name, 'draw')}}}"
    return "kChannelNumbers" if tensor.role == "channel" else identifier(tensor.name, "ptr")
