"""Norms and reductions over the positions of images, and blocks around them, beside PyTorch, in both memory formats.

    PYTHONPATH=. python benchmarks/images.py --csv benchmarks/results/images_h200.csv     on a CUDA device

The chains are those of SUBJECTS, in bfloat16. A row for each size, memory format and mode is appended to the CSV. All
take turns. copy_ms, beside a norm alone, is a copy of the fewest bytes that a pass can move: forward the image is read
and the result written; a step reads the image twice and the incoming gradient, and writes a result and a gradient.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from chains import append, build  # noqa: E402
from chains_subject import FORWARD, STEP, Pair, modes_of, opened, pair, ratio, subjects_of, times  # noqa: E402

from fusegen.bench.clock import CudaClock  # noqa: E402
from fusegen.bench.names import TYPICAL  # noqa: E402
from fusegen.bench.shapes import sizes_of  # noqa: E402
from fusegen.bench.work import Call  # noqa: E402

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
NORMS = {"groupnorm_silu": (TYPICAL, "4x512x128x128"), "instancenorm_relu": (TYPICAL,)}
BLOCKS = (
    *("squeeze_excite", "diffusion_resblock", "densenet_layer", "convnext_block", "inverted_residual"),
    *("resnet_bottleneck", "preactivation_block", "upsample_merge"),
)
SUBJECTS: dict[str, tuple[str, ...]] = {**NORMS, **dict.fromkeys(BLOCKS, (TYPICAL,))}
COPY = "copy"


@dataclass(frozen=True)
class Line:
    """A row of the CSV. *_ms: medians of device time. ratio: the fused module's over that of the fastest peer."""

    gpu: str
    torch: str
    chain: str
    size: str
    format: str
    mode: str
    fused_ms: float
    copy_ms: float | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    autotune_ms: float | None = None
    ratio: float | None = None
    problem: str = ""


def in_format(found: Pair, format_: torch.memory_format) -> Pair:
    """The modules, inputs and incoming gradients in a memory format."""

    def change(x: torch.Tensor) -> torch.Tensor:
        return x.detach().contiguous(memory_format=format_).requires_grad_(x.requires_grad) if x.dim() == 4 else x

    modules = {name: getattr(found, name).to(memory_format=format_) for name in ("fused", "eager")}
    return replace(found, **modules, inputs=[*map(change, found.inputs)], grads=[*map(change, found.grads)])


def copied(count: int) -> Call:
    """A call that moves so many bytes, half of them read."""
    source = torch.empty(count // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def measure(name: str, work: Path, peers: list[str]) -> Iterator[Line]:
    """Of a chain: a row for each size, memory format and mode."""
    clock, subject = CudaClock(), opened(name, work)
    (mode,) = modes_of(subject.plan)
    for chosen in SUBJECTS[name]:
        size = str(sizes_of(subject.plan, chosen))
        made = pair(subject, mode, chosen)
        for format_name, format_ in FORMATS.items():
            found = in_format(made, format_)
            problems = found.differences()
            modules = subjects_of(found, problems, peers)
            for what, tensors in ((STEP, 5), (FORWARD, 2)):
                calls = {each: found.call(module, what) for each, module in modules.items()}
                if name in NORMS:
                    calls[COPY] = copied(tensors * found.inputs[0].nbytes)
                taken = {each: spread.median for each, spread in times(clock, calls).items()}
                gain = ratio({each: value for each, value in taken.items() if each != COPY})
                place = (torch.cuda.get_device_name(), torch.__version__, name, size, format_name, what)
                figures = {f"{each.removeprefix('max-')}_ms": value for each, value in taken.items()}
                yield Line(*place, **figures, ratio=gain, problem="; ".join(problems))
                shown = ", ".join(f"{each} {value * 1e3:.0f}" for each, value in taken.items())
                print(f"{name} {size} {format_name} {what}: {shown} us, {gain or 0:.3f}", *problems, flush=True)
            torch.compiler.reset()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--only", default=",".join(SUBJECTS))
    parser.add_argument("--against", default="eager,compile", help="peers; max-autotune, too, is possible")
    parser.add_argument("--work", type=Path, help="where packages and caches are; kept")
    options = parser.parse_args()
    names, work = options.only.split(","), options.work or Path(tempfile.mkdtemp())
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(work / "inductor"))
    build(names, work, ("bfloat16",))
    for name in names:
        for line in measure(name, work, options.against.split(",")):
            append(options.csv, [line])


if __name__ == "__main__":
    main()
