"""One torch op as bindings.cpp has it: its arguments, what it checks, what it passes to the launcher."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusegen.plan.model import Role
from fusegen.render.spelling import spell


@dataclass(frozen=True)
class Argument:
    """One argument of an op: its C++ type and its type in the schema. ours: no part of the chain, such as the mode."""

    name: str
    cpp: str
    schema: str
    ours: bool = False

    @property
    def public(self) -> str:
        """What the schema and Python call it: the chain's names as they are, ours with an underscore before them,
        which no name of a spec has."""
        return f"_{self.name}" if self.ours else self.name

    @property
    def local(self) -> str:
        """What bindings.cpp calls it."""
        return self.name if self.ours else spell(self.name, "arg")


@dataclass
class Op:
    """Everything that bindings.cpp says of one op. struct, launched: the type of its launcher's arguments, and each of
    them with its value. in_epilogue: what makes `product` where the kernels may run in its epilogue. tiled: it takes
    images, see torch_images.h. samples: how many have sums of their own; empty without such. guard: a condition of the
    launch; empty where there is none. result: the C++ type of what it returns; empty for a tuple of tensors, or a list
    of gradients."""

    name: str
    function: str
    symbol: str
    struct: str
    forward: bool
    groups: bool
    tiled: bool
    samples: str = ""
    arguments: list[Argument] = field(default_factory=list)
    first: str = ""
    sizes: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    allocations: list[str] = field(default_factory=list)
    launched: list[tuple[str, str]] = field(default_factory=list)
    in_epilogue: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    returns: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    schema: list[str] = field(default_factory=list)
    guard: str = ""
    result: str = ""

    @property
    def like(self) -> str:
        """C++: the first argument, on whose device all happens."""
        return arg(self.first)


TENSOR = ("const Tensor&", "Tensor")
OUTER = "images.outer()"
"""C++: the sizes of what a program reads or writes as [batch, channels, positions], in a call with images."""
OPTIONAL = ("const OptionalTensor&", "Tensor?")


def dtype_field(role: Role) -> str:
    """The member of `Dtypes` that holds a role's dtype."""
    kind, _, name = role.partition(" ")
    return spell(name, "dtype") if name and kind in ("input", "output") else role


def arg(name: str) -> str:
    return spell(name, "arg")


def out(name: str) -> str:
    return spell(name, "out")


def read(name: str, dtype: str, shape: str) -> str:
    """Checks an argument that a kernel reads, and makes it contiguous."""
    made = "glue::outer_input(kCopier, args, " if shape == OUTER else "args.input("
    return f'const Tensor {spell(name, "in")} = {made}"{name}", {arg(name)}, {dtype}, {shape});'
