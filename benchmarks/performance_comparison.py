"""The figures in docs/comparison.md: fusegen beside each other tool that was measured, from the CSVs of the scripts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from performance_chains import gain, latest
from performance_sections import Line, Markdown

# Below that the peer counts as faster.
LEAST = 0.995
_TEXT = """How many times the other tool's figure is fusegen's: above 1, fusegen is faster, or takes less memory. The
geometric mean, and in brackets the least and the most. All of it with torch {torch}.

{table}"""


def comparison(lines: Mapping[str, Sequence[Line]], markdown: Markdown) -> str:
    """The text of the part. lines: of the CSVs, by the first words of their names: models, model_starts, chains,
    images, linear_losses, row_peers and cudnn_patterns."""
    versions = sorted({line["torch"].partition("+")[0] for own in lines.values() for line in own})
    return _TEXT.format(torch=" and ".join(versions), table=markdown(list(_rows(lines))))


def _rows(lines: Mapping[str, Sequence[Line]]) -> Iterator[Line]:
    for precision, name in (("amp", "autocast to bfloat16"), ("fp32", "float32")):
        pairs = _routes(lines["models"], precision, "compile", "fusegen")
        yield _row("torch.compile", f"a step of whole models, {name}", pairs, lines["models"], "device_ms")
    pairs = _routes(lines["models"], "fp32", "compile", "fusegen_split")
    yield _row("torch.compile", "a step of whole models, float32 by `fp32_split`", pairs, lines["models"], "device_ms")
    for mode, name in (("step", "a training step"), ("forward", "a forward pass in evaluation")):
        for file, what in (("chains", "of the chains that people write"), ("images", "of norms of images")):
            own = [line for line in lines[file] if line["mode"] == mode]
            found = [gain(line) for line in (latest(own) if file == "chains" else own)]
            yield _gains("the faster of torch.compile and eager", f"{name} {what}", found, lines[file])
    for column, what in (("later_s", "a later start of a model"), ("first_s", "the first start of a model")):
        pairs = _routes(lines["model_starts"], "amp", "compile", "fusegen")
        yield _row("torch.compile", what, pairs, lines["model_starts"], column)
    losses = _pairs(lines["linear_losses"], lambda line: line["size"], "subject", "Liger", "fused, chunk: auto")
    yield _row("Liger", "a step of a vocabulary's loss in chunks", losses, lines["linear_losses"], "ms")
    yield _row("Liger", "the same: its memory", losses, lines["linear_losses"], "peak_mib")
    for run, name in (("step", "a step"), ("forward", "a forward pass")):
        own = [line for line in lines["row_peers"] if line["run"] == run and line["liger_ms"]]
        found = [float(line["liger_ms"]) / float(line["fusegen_ms"]) for line in own]
        yield _gains("Liger", f"{name} of softmax and norms alone", found, lines["row_peers"])
    pairs = _routes(lines["models"], "bf16", "liger", "fusegen")
    yield _row("Liger", "a step of four layers of a Llama, bfloat16", pairs, lines["models"], "device_ms")
    for memory in ("channels_last", "contiguous_format"):
        own = [line for line in lines["cudnn_patterns"] if line["memory"] == memory]
        found = [float(line["cudnn_us"]) / float(line["fused_us"]) for line in own]
        what = f"its fused patterns, forward, {memory.removesuffix('_format')}"
        yield _gains("cuDNN's graph API", what, found, lines["cudnn_patterns"])


def _routes(lines: Sequence[Line], precision: str, theirs: str, ours: str) -> list[tuple[Line, Line]]:
    own = [line for line in lines if line["precision"] == precision]
    return _pairs(own, lambda line: line["model"], "route", theirs, ours)


def _pairs(
    lines: Iterable[Line], key: Callable[[Line], str], column: str, theirs: str, ours: str
) -> list[tuple[Line, Line]]:
    """The other tool's line and fusegen's, of each that has both."""
    found: dict[str, dict[str, Line]] = {}
    for line in lines:
        found.setdefault(key(line), {})[line[column]] = line
    return [(each[theirs], each[ours]) for each in found.values() if {theirs, ours} <= each.keys()]


def _row(peer: str, what: str, pairs: Sequence[tuple[Line, Line]], lines: Sequence[Line], column: str) -> Line:
    return _gains(peer, what, [float(theirs[column]) / float(ours[column]) for theirs, ours in pairs], lines)


def _short(gpu: str) -> str:
    return gpu.removeprefix("NVIDIA ").removesuffix(" 80GB HBM3")


def _gains(peer: str, what: str, found: Sequence[float | None], lines: Sequence[Line]) -> Line:
    known = [each for each in found if each is not None]
    least, most = min(known), max(known)
    mean = f"{statistics.geometric_mean(known):.2f}"
    return {
        "beside": peer,
        "what": what,
        "GPU": " and ".join(_short(gpu) for gpu in dict.fromkeys(line["gpu"] for line in lines)),
        "number": str(len(known)),
        "fusegen's gain": mean if len(known) == 1 else f"{mean} ({least:.2f} to {most:.2f})",
        "fusegen is behind in": str(sum(each < LEAST for each in known)),
    }
