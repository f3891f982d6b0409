"""What public graders of CUDA kernels in one file ask of its text, restated.

They take comments off by cutting lines at `#` and `//`, which leaves what is not at the end of a line, and cuts strings
too. So a rule must hold with comments and without.
"""

from __future__ import annotations

import re

# Refused outright: fallbacks, inheritance, other timing, lazy results.
_REFUSED = {
    "a try statement": r"\btry\s*:",
    "an except clause": r"\bexcept\s*:|\bexcept\s+\w+",
    "the word": r"\bpass\b",
    "threads": r"import\s+threading|from\s+threading\s+import|threading\.Thread\s*\(|(?:Thread|Process)PoolExecutor"
    r"|import\s+multiprocessing|multiprocessing\.\w+|concurrent\.futures",
    "a subclass of Tensor": r"_make_subclass|class\s+\w+.*\((?:torch\.)?Tensor\)|torch\.Tensor\.__new__",
    "a patched timer": r"(?:torch\.cuda\.(?:Event|synchronize|Event\.\w+)|time\.(?:time|perf_counter))\s*=[^=]",
    "streams": r"cuda\.Stream\s*\(|with\s+torch\.cuda\.stream|\.(?:wait|record)_stream\s*\(",
    "a future statement": r"from\s+__future__",
    "the file's name": r"__file__|(?<!\.)__name__",
}
# A warning of some: operators of PyTorch's that a kernel should replace.
_WARNED = {
    "a layer": r"torch\.nn\.(?!(?:Module|[pP]arameter|ParameterList|ParameterDict|ModuleList|ModuleDict|init)\b)"
    r"|\bnn\.(?!(?:Module|Parameter|ParameterList|ParameterDict|ModuleList|ModuleDict|init)\b)\w",
    "a function": r"\bF\.\w+|nn\.functional",
    "an operator": r"\btorch\.(?:mm|bmm|matmul|einsum|conv\w*|relu|elu|selu|gelu|tanh|sigmoid|softmax|log_softmax|silu"
    r"|mish|leaky_relu|hardtanh|softplus|softsign|batch_norm|group_norm|layer_norm|rms_norm|linear|logsumexp|clamp)(?=\s*\(|\s|$)",
}
# Of what casts a float32 problem to fp16. CUDA's intrinsics, of which some warn too, are not here: the kernels of
# float16 need them, and so do the pieces of split products.
_FP16 = {
    "a cast to fp16": r"\.half\s*\(|\.to\s*\(\s*(?:dtype\s*=\s*)?torch\.(?:float16|half)\b|static_cast<\s*_*half\s*>"
}
_NEEDED = ("__global__", "load_inline", "threadIdx", "class ModelNew")


def complaints(text: str) -> list[str]:
    """Of errors and warnings; empty for a file that all of them take."""
    found = [] if text.isascii() else ["other characters than those of ASCII"]
    for shown in (text, without_comments(text)):
        found += [f"lacks {each}" for each in _NEEDED if each not in shown]
        for rules in (_REFUSED, _WARNED, _FP16):
            for what, pattern in rules.items():
                for match in re.finditer(pattern, shown):
                    line = shown[: match.start()].count("\n") + 1
                    found.append(f"{what}: {match[0]!r} in line {line}")
    return found


def without_comments(text: str) -> str:
    return "\n".join(re.split(r"#|//", line)[0] for line in text.split("\n"))
