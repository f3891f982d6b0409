"""docs/performance.md is what its script writes from the committed results."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.bench.test_rows import row

ROOT = Path(__file__).resolve().parents[2]
# CPU time of the parts of a build.
SECONDS = {
    "kernels.cu (forward)": "9",
    "kernels.cu (backward)": "8",
    "bindings.cpp": "3",
    "headers of pybind11 alone": "2.5",
    "autograd.cpp": "5",
    "python_module.cpp": "2.6",
}


def script(name: str = "performance_page"):
    # By path: benchmarks/ is no package.
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_committed_results() -> None:
    written = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    hint = "run `PYTHONPATH=. python benchmarks/performance_page.py`"
    assert script().page_of(ROOT / "benchmarks" / "results") == written, hint


def test_what_the_page_has_of_a_run() -> None:
    ceilings = {"copy_gb_s": 3000.0, "contraction_tflop_s": 700.0, "command": "fusegen bench specs", "targets": "sm_90"}
    large = {"shape": "1024x8192x8192", "mode": "train-forward-backward", "dtype": "bf16", **ceilings}
    small = {"shape": "64x256x256", "mode": "train-forward", **ceilings}
    rows = [
        row(subject="copy", device_ms=0.02, **large),
        row(subject="contraction", device_ms=0.6, **large),
        row(
            subject="fused",
            device_ms=0.65,
            device_ms_q1=0.64,
            device_ms_q3=0.66,
            device_ratio=0.929,
            floor_ms=0.02,
            tail_ms=0.05,
            tail_bytes=60_000_000,
            tail_over_floor=2.5,
            peak_bytes=2**20,
            **large,
        ),
        row(subject="compile", device_ms=0.7, tail_ms=0.1, peak_bytes=3 * 2**20, **large),
        row(subject="reduce-overhead", device_ms=0.72, **large),
        row(subject="fused", wall_us=50.0, wall_ratio=0.625, **small),
        row(subject="eager", wall_us=125.0, wall_ratio=1.5, **small),
        row(subject="reduce-overhead", wall_us=80.0, wall_ratio=1.0, **small),
    ]
    kernels = [
        {"kernel": "forward", "us": "3.0", "ratio": "1.10", "device": "NVIDIA Test"},
        {"kernel": "library", "us": "3.0", "ratio": "", "device": "NVIDIA Test"},
    ]
    text = script().page(rows, kernels)
    place = "| demo | 1024x8192x8192 | bf16 |"
    assert f"{place} 0.6 | 0.65 | 0.7 | 0.72 | 0.929 | 2.50 | 3.1% |" in text
    assert "| chain | size | dtype | mode | fused | eager | reduce-overhead | best without graphs / fused |" in text
    assert "| demo | 64x256x256 | fp32 | train forward | 50 | 125 | 80 | 2.50 | 1.60 |" in text
    assert f"{place} 60 | 0.02 | 0.05 | 0.1 | 2.50 | 40% |" in text
    assert "| demo | 1024x8192x8192 | bf16 | 1.0 | 3.0 |" in text
    assert "    fusegen bench specs\n" in text and "a large copy 3000 GB/s" in text and "bf16 700 TFLOP/s" in text
    assert "in 1 of 1 configurations" in text and "one subject after another" not in text
    assert "| forward | 3.0 | 1.10 |" in text and "library |" not in text


def test_what_is_wanted_and_what_was_measured() -> None:
    """Each line by its own threshold, the reason behind it from the same figures."""
    targets = script("performance_targets")
    chain = {"spec": "gemm_scale_bn", "subject": "fused", "dtype": "bf16", "mode": "train-forward-backward"}
    step = {"shape": "1024x8192x8192", "device_ms": 0.5, "contraction_ms": 0.45, "floor_ms": 0.02}
    small = {"shape": "64x256x256"}
    rows = [
        row(**chain, **step, device_ratio=0.8, tail_over_floor=1.31),
        row(**chain | {"mode": "train-forward"}, **step, device_ratio=1.01, tail_over_floor=1.2),
        row(subject="fused", wall_us=50.0, **small),
        row(subject="eager", wall_us=130.0, **small),
        row(subject="compile", wall_us=120.0, **small),
        row(subject="reduce-overhead", wall_us=40.0, **small),
    ]
    device = rows[0].gpu
    kernels = [{"device": device, "ratio": "1.25", "bytes": str(2**27)}, {"device": device, "ratio": "9", "bytes": "1"}]
    host = host_lines(device)
    builds = [
        {"what": "cold build", "specs": "a", "targets": "sm_90", "wall_s": "13", "limit_s": "12"},
        {"what": "cold build", "specs": "b", "targets": "sm_90", "wall_s": "11", "limit_s": "12"},
        *(
            {"what": what, "specs": "a", "targets": "sm_90", "wall_s": "9", "cpu_s": cpu, "limit_s": ""}
            for what, cpu in SECONDS.items()
        ),
        {"what": "cold build", "specs": "all", "targets": "sm_80 sm_90", "wall_s": "80", "limit_s": "90"},
    ]
    text = targets.targets_section(rows, kernels, [], host, builds, listed)

    def line(wanted: str, measured: str, met: str) -> bool:
        return str({"wanted": wanted, "measured": measured, "met": met}) in text

    assert line("tails in bf16 at most 1.3 of the floor", "1 of 2, worst 1.31", "no") and "tails in fp32" not in text
    assert line("kernels that move more than the L2 holds at 85% of a copy's speed", "0 of 1, worst 80%", "no")
    assert line("chains at least as fast as the fastest peer", "1 of 2, worst 1.010 of its time", "no")
    assert line("1.15 times faster in bf16, forward and backward, chains with batch norm", "1.25 to 1.25", "yes")
    assert "'fastest peer / fused': '1.25', 'fastest peer / (contraction + floor)': '1.33'" in text
    assert line("small shapes 2.5 times faster than peers without CUDA graphs", "2.40 to 2.40", "no")
    assert line("and faster than with them", "0 of 1, least 0.80", "no")
    assert "2.50 to 2.50 times as fast as\n  eager" in text
    assert "2.00 to 2.00 times as fast, and takes 1.25 to 1.25" in text
    assert line("cold build of a seed spec for 1 architecture within 12 s", "11 to 13 s", "no")
    assert line("cold build of all for 2 architectures within 90 s", "80 s", "yes") and "kernels.cu" not in text
    assert (
        "| kernels of a, for the dtypes of five modes, with vectors and without | 17.0 |\n| a binding | 3.0 |" in text
    )
    assert "differentiates the ops | 5.0 |\n" in text and "of all packages | 2.6 |\n" in text
    assert "the headers of pybind11 alone | 2.5 |\n" in text
    whole = [line for line in builds if line["limit_s"]]
    assert "kernels of a" not in targets.targets_section(rows, kernels, [], host, whole, listed)
    assert targets.targets_section([], kernels, [], host, builds, listed) == ""


def test_what_was_not_taken_in_rounds_is_said_so() -> None:
    assert "one subject after another" in script().page([row(device_ms=1.0, command="python time.py")], [])


def test_shapes_without_a_linear_layer() -> None:
    step = {"subject": "fused", "mode": "train-forward-backward", "device_ms": 1.0, "wall_us": 9.0}
    text = script().page([row(shape=shape, **step) for shape in ("64x256", "4096x8192")], [])
    assert "| demo | 4096x8192 | fp32 | 1 |" in text
    assert "| demo | 64x256 | fp32 | train forward+backward | 9 |" in text


STEP = {"mode": "train-forward-backward", "command": "fusegen bench specs --dtypes bf16"}
LARGE, SMALL = {"shape": "1024x8192x8192", "dtype": "bf16"}, {"shape": "64x256x256", "dtype": "fp32"}
# Two chains at a large shape, of which one is slower than a peer, and one at a small shape.
ANSWER = [
    row(spec="one", subject="fused", device_ms=1.0, device_ratio=0.5, contraction_ms=0.9, **LARGE, **STEP),
    row(spec="one", subject="eager", device_ms=8.0, **LARGE, **STEP),
    row(spec="one", subject="compile", device_ms=3.0, **LARGE, **STEP),
    row(spec="one", subject="max-autotune", device_ms=2.0, **LARGE, **STEP),
    row(spec="two", subject="fused", device_ms=2.0, device_ratio=1.25, contraction_ms=1.6, **LARGE, **STEP),
    row(spec="two", subject="eager", device_ms=4.0, **LARGE, **STEP),
    row(spec="two", subject="compile", device_ms=1.6, **LARGE, **STEP),
    row(spec="one", subject="fused", wall_us=50.0, wall_ratio=0.625, device_ratio=3.0, **SMALL, **STEP),
    row(spec="one", subject="eager", wall_us=80.0, **SMALL, **STEP),
    row(spec="one", subject="reduce-overhead", wall_us=100.0, **SMALL, **STEP),
]


def test_the_page_begins_with_the_answer() -> None:
    text = script().page(ANSWER, [])
    assert text.startswith("# Performance\n\n## Is it faster?\n\nOn an ")
    words = " ".join(text.split())
    assert "is 1.26 (bf16) times as fast at large shapes, 1.60 (fp32) times as fast at small shapes." in words
    gains = "4.00 (2.00 to 8.00) | 1.26 (0.80 to 2.00) | 1.26 (0.80 to 2.00) |"
    assert f"| train forward+backward | large | bf16 | 2 | {gains}" in text
    assert "| train forward+backward | small | fp32 | 1 | 1.60 | 2.00 | 1.60 |" in text
    assert "A peer is faster in 1 of 3 configurations:\n\n- two, 1024x8192x8192, bf16, train forward+back" in text
    assert ": 1.250 of the peer's time\n" in text
    assert "Of a fused training step at large shapes they take 85% in bf16." in words
    assert "A peer is faster in 0 of 1 configurations.\n" in script().page(ANSWER[:4], [])


def test_the_readme_has_the_figures_of_the_committed_results() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert script().readme_of(ROOT / "benchmarks" / "results", readme) == readme


def test_the_comparison_has_the_figures_of_the_committed_results() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    assert script().comparison_of(ROOT / "benchmarks" / "results", page) == page


def test_a_comparison() -> None:
    """The other tool's figure over ours, of each pair that was measured, and how often it is ahead."""
    comparison = script("performance_comparison")
    lines = [
        {"model": model, "precision": "amp", "route": route, "device_ms": time, "gpu": "NVIDIA H200"}
        for model, times in {"a": ("4", "2"), "b": ("1", "2"), "c": ("9", None)}.items()
        for route, time in zip(("compile", "fusegen"), times, strict=True)
        if time
    ]
    pairs = comparison._routes(lines, "amp", "compile", "fusegen")
    assert comparison._row("torch.compile", "a step", pairs, lines, "device_ms") == {
        "beside": "torch.compile",
        "what": "a step",
        "GPU": "H200",
        "number": "2",
        "fusegen's gain": "1.00 (0.50 to 2.00)",
        "fusegen is behind in": "1",
    }
    assert comparison._gains("Liger", "a step", [0.9, None], lines)["fusegen's gain"] == "0.90"


def test_the_headline() -> None:
    answer = script("performance_answer")
    steps = {"eager": "4.000", "compile": "3.000", "fusegen": "2.000"}
    models = [
        {"model": "net", "precision": "amp", "route": route, "device_ms": time, "gpu": "GPU", "torch": "2.11.0+cu130"}
        for route, time in steps.items()
    ]
    text = answer.headline(ANSWER, models, script()._markdown)
    assert "| net | 4.0 | 3.0 | 2.0 | 1.50 |" in text and " 1.50 times as fast as `torch.compile`" in text
    assert "| large | bf16 | 2 | 4.00 (2.00 to 8.00) | 1.26 (0.80 to 2.00) | 1.26 (0.80 to 2.00) |" in text
    assert "`fusegen bench specs --dtypes bf16`" in text and ANSWER[0].gpu in text and ANSWER[0].torch in text
    readme = f"a\n{answer.BEGIN}\nold\n{answer.END}\nb\n"
    assert answer.with_headline(readme, "new \\1\n") == f"a\n{answer.BEGIN}\n\nnew \\1\n\n{answer.END}\nb\n"
    with pytest.raises(ValueError, match="the page has no"):
        answer.with_headline("no marks", "new")


def test_why_memory_is_what_it_is() -> None:
    """Four activations more than torch.compile, of 1024 x 8192 x 2 bytes."""
    step = {**LARGE, **STEP}
    peaks = {"fused": 5 * 2**24, "eager": 6 * 2**24, "compile": 2**24}
    text = script().page([row(subject=name, peak_bytes=peak, **step) for name, peak in peaks.items()], [])
    assert "more than `torch.compile` in 1 of 1 rows, by at most 4.00 times an activation" in text
    assert "less than eager in 1 of 1." in " ".join(text.split())


def test_no_table_is_longer_than_a_page() -> None:
    """What is longer is a CSV."""
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert max(len(block.splitlines()) for block in text.split("\n\n") if block.startswith("|")) <= 32


def listed(table) -> str:
    return "\n".join(str(line) for line in table)


def host_lines(device: str) -> list[dict[str, str]]:
    """What host_time.py measures at one size."""
    place = {"spec": "demo", "shape": "1x2x3", "precision": "fp32", "device": device}
    step = {"eager": 200.0, "fused": 160.0, "bare": 90.0, "bare and ops": 100.0}
    one_thread = {"eager": 100.0, "fused": 50.0, "bare": 30.0, "bare and ops": 40.0}
    times = {(subject, "step"): time for subject, time in step.items()}
    times |= {(subject, "one thread"): time for subject, time in one_thread.items()}
    times |= {("fused", "op forward"): 30.0, ("fused", "op backward"): 45.0, ("fused", "forward"): 50.0}
    return [{**place, "subject": s, "part": p, "microseconds": str(time)} for (s, p), time in times.items()]


def test_sections_of_other_scripts() -> None:
    sections = script("performance_sections")
    assert not sections.limits_section([], listed) + sections.host_section([], listed)
    assert not sections.build_section([], listed)
    limits = [{"spec": "demo", "kernel": "forward", "us": "3.0", "device": device} for device in ("B", "A", "B")]
    text = sections.limits_section(limits, listed)
    assert text.count("## What bounds the kernels on") == 2 and text.count("'us': '3.0'") == 3
    jumps = [{"program": "forward", "size": "8x9", "slots": "99.1", "device": "A"}]
    assert not sections.jumps_section([], listed) and "'slots': '99.1'" in sections.jumps_section(jumps, listed)
    text = sections.host_section(host_lines("A"), listed)
    assert "'ops': '75', 'eager': '200', 'fused': '160', 'bare': '90', 'bare and ops': '100'" in text
    assert "'eager / fused': '1.25', 'eager / bare and ops': '2.00'" in text
    assert "'eager / fused, one thread': '2.00', 'eager / bare and ops, one thread': '2.50'" in text
    assert "'bare, one thread': '30'" in text and "**one thread**" in text
    build = dict.fromkeys(("what", "specs", "targets", "wall_s", "cpu_s", "runs", "limit_s", "cores", "load"), "7")
    text = sections.build_section([build], listed)
    assert "on 7 cores with a load of 7" in text and "'wanted, s': '7'" in text
