"""The sections on whole models of docs/performance.md, from the CSVs of models.py and model_starts.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

Line = Mapping[str, str]
Markdown = Callable[[Sequence[dict[str, str]]], str]

_HEAD = """
## Whole models: {gpu}

A training step (forward, loss, backward) of whole models by PyTorch, by `torch.compile` as it is,
and with `backend="fusegen"`, torch {torch}: device time in ms.

amp is autocast to bfloat16 with float32 parameters, bf16 has parameters of bfloat16. Memory is the
most that a step allocates beside weights, gradients and the batch: torch.compile's, and with
fusegen.

Generated kernels are what is neither a library's nor PyTorch's own: Triton's of torch.compile,
and fusegen's with Triton's of the rest, each kernel's time added up. A library's products take up to 4 %
more or less from run to run, as warm as the GPU is: where these are nearly all of a step, as Llama's, the
generated kernels tell more than the step.

The CSV of `benchmarks/models.py` has host and wall times as well; these differ by up to a third from run to
run, so that no ratio is made of them.

Liger patches a model that is not compiled: there transformers calls Llama's attention as causal, and under
torch.compile with a mask, which takes longer.
"""
_STARTS = """
## Starts of whole models: {gpu}

Seconds from the compiler's call to the end of the first step, and host time of a step in ms, by
`torch.compile` and with `backend="fusegen"`, one process at a time on {cores} cores: first without
anything that was compiled before, later with all of it. Models and precision as above, torch {torch}.
"""
_SPLIT = """Models in float32, which TF32 does not round, by `torch.compile` in ieee and by
`precision="fp32_split"`:
"""
_GRAPHS = """With `mode="reduce-overhead"`, CUDA graphs, wall time of a step in a row of steps, in ms:
"""
_ROUTES = ("compile", "fusegen")


def models_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """Tables of each GPU; nothing without lines."""
    parts = []
    for gpu in dict.fromkeys(line["gpu"] for line in lines):
        models: dict[str, dict[str, Line]] = {}
        for line in lines:
            if line["gpu"] == gpu:
                models.setdefault(line["model"], {})[line["route"]] = line
        torch = ", ".join(dict.fromkeys(line["torch"] for line in lines if line["gpu"] == gpu))
        parts.append(_HEAD.format(gpu=gpu, torch=torch))
        parts.append(_table(models, "fusegen", "compile", markdown))
        split = _table(models, "fusegen_split", "compile", markdown)
        parts += [_SPLIT, split] if split else []
        graphs = _table(models, "fusegen_graphs", "compile_graphs", markdown, of_graphs=True)
        parts += [_GRAPHS, graphs] if graphs else []
    return "\n".join(parts)


def starts_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """A table of each GPU; nothing without lines."""
    parts = []
    for gpu in dict.fromkeys(line["gpu"] for line in lines):
        own = [line for line in lines if line["gpu"] == gpu]
        known = {(line["model"], line["route"]): line for line in own}
        columns = {"first": "first_s", "later": "later_s", "host": "host_ms"}
        table = [
            {"model": model}
            | {
                f"{text}: torch.compile, fusegen": ", ".join(known[model, route][column] for route in _ROUTES)
                for text, column in columns.items()
            }
            for model in dict.fromkeys(line["model"] for line in own)
        ]
        hosts = [
            statistics.geometric_mean(float(line["host_ms"]) for line in own if line["route"] == route)
            for route in _ROUTES
        ]
        parts.append(_STARTS.format(gpu=gpu, cores=own[0]["cores"], torch=own[0]["torch"]))
        parts.append(markdown(table))
        parts.append(f"Host time, fusegen / torch.compile: {hosts[1] / hosts[0]:.3f} in the geometric mean.\n")
    return "\n".join(parts)


def _table(
    models: Mapping[str, Mapping[str, Line]], route: str, peer: str, markdown: Markdown, *, of_graphs: bool = False
) -> str:
    """Of the models that have the route and torch.compile's, `peer`, beside it. of_graphs: wall times, without memory,
    which a pool of graphs has."""
    table, ratios = [], []
    for model, found in models.items():
        if route not in found or peer not in found:
            continue
        ours, theirs = found[route], found[peer]
        column = "wall_ms" if of_graphs else "device_ms"
        ratio = float(ours[column]) / float(theirs[column])
        ratios.append(ratio)
        line = {"model": model, "precision": ours["precision"]}
        if not of_graphs:
            line |= {name: found[name.lower()][column] if name.lower() in found else "" for name in ("eager", "Liger")}
        line |= {
            "torch.compile": theirs[column],
            "fusegen": ours[column],
            "fusegen / torch.compile": f"{ratio:.3f}",
        }
        if not of_graphs:
            kernels = (sum(float(each[name]) for name in ("fusegen_ms", "triton_ms")) for each in (theirs, ours))
            memory = float(ours["peak_mib"]) / float(theirs["peak_mib"])
            line |= {
                "generated kernels": ", ".join(f"{ms:.3f}" for ms in kernels),
                "memory, MiB": f"{theirs['peak_mib']}, {ours['peak_mib']}",
                "memory / torch.compile's": f"{memory:.2f}",
            }
        table.append(line | {"places": ours["places"]})
    if not table:
        return ""
    mean = statistics.geometric_mean(ratios)
    return (
        markdown(table) + f"\nfusegen / torch.compile: {mean:.3f} in the geometric mean, {max(ratios):.3f} at most.\n"
    )
