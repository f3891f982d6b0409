"""Batch norms with running statistics in a call: see templates/support/batch_norms.py."""

from __future__ import annotations

from fusegen.render.ops.functions import as_tuple
from fusegen.render.python.call_names import CallNames
from fusegen.render.text.environment import wrap


class TrackedNorms:
    """Prints the statements of all of them."""

    def __init__(self, call: CallNames) -> None:
        self.call, self.names = call, call.tracked()

    def reads(self, lacks_variance: str) -> list[str]:
        """Statements that find the statistics of each norm. lacks_variance: two arguments, a function and what tells
        whether the batch has a variance."""
        norms = as_tuple([f'("{name}", {self.call.local[name]})' for name in self.names])
        variables = ", ".join(f"({', '.join(_variables(name))})" for name in self.names)
        called = f"_support.running_statistics({norms}, _parameter, _channels, {lacks_variance})"
        lines = wrap(f"_norms, _is_frozen, _why = {called}", 92, 4).splitlines()
        lines += ["if _why:", "    return None, _why"]
        return [*lines, *wrap(f"({variables},) = _norms", 92, 4).splitlines()]

    def statistics(self) -> dict[str, str]:
        """By attribute: the variables of each running mean and variance."""
        return {f"{name}.running_{each}": f"_{name}_{each}" for name in self.names for each in ("mean", "var")}

    def moved(self) -> dict[str, str]:
        """By attribute: each count and each momentum."""
        found = {f"{name}.num_batches_tracked": f"_{name}_batches" for name in self.names}
        counted = "_support.counted(_{0}_momentum, _{0}_batches, _count)"
        return found | {f"{name}.momentum": counted.format(name) for name in self.names}

    def exchanged(self, name: str) -> str:
        """The arguments of `Ranks` behind the group, for a norm over several ranks."""
        return ", ".join(_variables(name)) if name in self.names else "None, None, None, 0.0"


def _variables(name: str) -> list[str]:
    return [f"_{name}_{each}" for each in ("mean", "var", "batches", "momentum")]
