"""Batch norms with running statistics in a call: what is read of them, which statistics are taken, what moves them."""

from __future__ import annotations

from fusegen.render.call_names import CallNames, refuse


class TrackedNorms:
    """Prints the statements of all of them."""

    def __init__(self, call: CallNames) -> None:
        self.call, self.names = call, call.tracked()

    def statistics(self) -> dict[str, str]:
        """By attribute: the variable of each running mean and variance."""
        return {f"{name}.running_{each}": f"_{name}_{each}" for name in self.names for each in ("mean", "var")}

    def reads(self) -> list[str]:
        lines = []
        for name in self.names:
            lines += [f"_{name}_{each} = {self.call.tensor(f'{name}.running_{each}')}" for each in ("mean", "var")]
            lines += [
                f"if (_{name}_mean is None) != (_{name}_var is None):",
                "    return None, _support.HALF_TRACKED",
            ]
        return lines

    def frozen(self) -> list[str]:
        """The head of a branch for a call that takes the running statistics."""
        batch = [f"{self.call.local[name]}.training or _{name}_mean is None" for name in self.names]
        lines = ["# As nn.BatchNorm: the batch's statistics in training, and where there are no others."]
        if len(self.names) == 1:
            return [*lines, f"if not ({batch[0]}):"]
        lines += ["_batch = (", *(f"    {text}," for text in batch), ")"]
        lines += ["if any(_batch) != all(_batch):", "    return None, _support.SOME_FROZEN"]
        return [*lines, "if not any(_batch):"]

    def momenta(self) -> list[str]:
        """Statements that find the momentum and the counts of a call that takes the batch's statistics."""
        lines = []
        for name in self.names:
            norm = self.call.local[name]
            lines += [
                f"_{name}_momentum = {norm}.momentum",
                f"_{name}_cumulative = _{name}_momentum is None",
                f"if _{name}_cumulative:  # a cumulative average, by the count on the device",
                f"    _{name}_momentum = 0.0",
                *refuse([f"_support.not_numbers(_{name}_momentum)"]),
                f"if _{name}_momentum < 0:",
                "    return None, _support.NEGATIVE_MOMENTUM",
                f"_{name}_batches = None",
                f"if {norm}.training and {norm}.track_running_stats:",
                f"    _{name}_batches = {self.call.tensor(f'{name}.num_batches_tracked')}",
                *(f"    {line}" for line in refuse([_misfit_statistics(name)])),
                "else:",
                f"    _{name}_mean, _{name}_var = None, None",
            ]
        return lines

    def counts(self) -> list[str]:
        """Statements that count the batch where the kernels do not."""
        lines = []
        for name in self.names:
            lines += [
                f"if _{name}_cumulative and _{name}_batches is not None:",
                f"    _{name}_momentum = -1.0  # to the kernels: by the count",
                "    if _count:",
                "        # All blocks of the kernels read it, so none of them may count.",
                f"        _{name}_batches.add_(1)",
            ]
        return lines

    def moved(self) -> dict[str, str]:
        """By attribute: the variable of each count and each momentum."""
        found = {f"{name}.num_batches_tracked": f"_{name}_batches" for name in self.names}
        return found | {f"{name}.momentum": f"_{name}_momentum" for name in self.names}


def _misfit_statistics(name: str) -> str:
    """What refuses the buffers that a batch norm in training writes."""
    buffers = ", ".join(f"_{name}_{part}" for part in ("mean", "var", "batches"))
    return f'_support.misfit_statistics("{name}", {buffers}, _parameter, _channels)'
