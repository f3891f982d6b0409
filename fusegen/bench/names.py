"""What can be measured, by the names that the command line, the CSV and the plots use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """The dtype of activations and parameters, and whether float32 products may be taken in TF32.

    product: the precision of the fused module's own product (`precision` of a linear step). Peers make theirs in dtype.
    """

    dtype: str
    tf32: bool = False
    product: str = "ieee"

    @property
    def is_dtype(self) -> bool:
        """Whether the dtype alone tells it."""
        return not self.tf32 and self.product == "ieee"


PRECISIONS = {
    "fp32": Precision("float32"),
    "fp32_split": Precision("float32", product="fp32_split"),
    "tf32": Precision("float32", tf32=True),
    "bf16": Precision("bfloat16"),
    "fp16": Precision("float16"),
}
DEFAULT_PRECISIONS = ("fp32", "tf32", "bf16")

EVAL, TRAIN, STEP = "eval-forward", "train-forward", "train-forward-backward"
MODES = {
    EVAL: "eval forward",
    TRAIN: "train forward",
    STEP: "train forward+backward",
}

# Where there is little room.
SHORT_MODES = {mode: text.replace("forward", "fwd").replace("backward", "bwd") for mode, text in MODES.items()}

# What a user would pick instead, in the order in which it is shown. max-autotune: without CUDA graphs, which are
# reduce-overhead's; with them it would be measured twice what a graph saves.
PEERS = ("eager", "compile", "reduce-overhead", "max-autotune")
GRAPH_PEERS = ("reduce-overhead",)

FUSED, CONTRACTION, COPY = "fused", "contraction", "copy"
SUBJECTS = (COPY, CONTRACTION, FUSED, *PEERS)

TYPICAL = "typical"
"""Stands for the sizes that the spec's `dims` name."""
