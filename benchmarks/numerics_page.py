"""The findings of numerics.py as CSV, and docs/numerics.md, which is written from it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from subjects import SEEDS

from fusegen.plan.programs.epilogue import SPLIT
from fusegen.verify.judgement import policy
from fusegen.verify.judgement.findings import Finding, Report

_FIGURES = ("fused_largest", "eager_largest", "bound_largest", "fused_norm", "eager_norm", "bound_norm")
_SPLIT_ERRORS = Path("benchmarks/results/split_errors_h100.csv")
_SPLIT_HEAD = """### What fp32_split was measured to lose

By `benchmarks/split_errors.py` on an {gpu}, torch {torch}: errors against float64, of fp32_split and
behind the comma of the library's float32, as relative Frobenius norms. Results are 1024 x 1024. The
library's sums are shorter, and so more accurate, where it splits them itself. Below 192 terms a
module multiplies as `ieee`.
"""

_HEAD = """# Numerics

What fusegen promises about accuracy, how `fusegen verify` judges it, and what was measured. This
page is written by `python benchmarks/numerics.py --render benchmarks/results/numerics_h200.csv`.
The CSV was measured by `python benchmarks/numerics.py --out DIR` on {device}.

## The policy

A fused result is compared with the same chain in double precision, on the same data and the same
parameters, beside what eager PyTorch makes of it in the same dtype. Its error may be at most

    {factor:g} x eager's error + {output_ulps:g} ulp of the computing dtype + {sum_ulps:g} ulp of float32 x sqrt(n)

where n is the length of the reduction behind the quantity (1024 rows for a bias's gradient over
1024 rows). Only the last term grows with n, because every reduction is accumulated in float32
whatever the storage dtype is; for float64 it is double's. The same bound holds for two measures:
the largest difference over the largest magnitude of the reference, and the relative Frobenius norm.
The constants are in `fusegen/verify/judgement/policy.py`.

- **Cancelling sums.** Some gradients are zero in exact arithmetic, such as that of a linear bias in
  front of a batch norm. Their rounding noise has the size of the terms that cancel. The error is
  relative to the root of the sum of the squares of these terms.
- **Kinks.** On which side of relu's zero a value falls can be a matter of its last bit. Where the
  output is within 64 ulps (float32) or 8 ulps (16 bits) of a kink, the incoming gradient is zero.
  What happens exactly at a kink is tested with chosen values, on which PyTorch's convention is met
  exactly.
- **Kinks inside a chain.** In front of a linear layer, convolution or norm the slope at one such
  element spreads over many gradients. Where a float32 result is beyond every other bound, double
  precision runs with these elements moved to either side say, value by value, what they decide. A
  result may be off by that and by the bound. Elements exactly at a kink are not moved.
- **Memory formats.** A convolution's rounding depends on the memory format, for which cuDNN takes
  other algorithms. Where TF32 is allowed, it may be used for one and not for the other. Eager's
  error is the worse of contiguous and channels_last inputs.
  In 16 bits PyTorch adds the bias on a GPU to a result that is rounded. So does eager on a CPU
  (`--emulate`), where oneDNN would add it first.
- **Zeros beside channels.** In 16 bits a convolution of few channels is made with zeros as further
  channels. That adds products that are zero to sums in float32: it may change their order alone.
- **Chance.** One run is a sample of eager's error. In a batch norm of two rows, or in a sum over many
  gradients that were rounded alike, another run of as much rounding may be many times as far away.
  What is beyond the bound is judged by the worst of nine runs of eager that differ by rounding alone
  (inputs and parameters an ulp up or down). The bound grows by that to at most 8 times its size in 16
  bits, 32 times in float32.
- **Training.** Three steps of SGD with momentum are judged by how far each parameter has moved.
  Training amplifies rounding. Eager's error is the worst of nine runs that differ by rounding alone
  (rows in another order, inputs an ulp up or down).
- **NaN and infinity.** In the output they are where eager has them. Gradients and buffers are
  finite where eager's are. Whether a sum of infinities is infinite or NaN depends on the order of
  its terms.
- **Tails.** A chain that is a function of one value is swept over its arguments on a GPU: every
  16-bit number, float32 ones of every exponent and more where functions change. Each result and
  each derivative is judged by its own ulps. Where eager is within 4 of them (float32) or 1 (16
  bits), the fused result is within twice as many, subnormal results included. Where eager has lost
  its digits nothing is asked. `tests/gpu/test_tails.py` makes such a chain of every function in the
  catalogue.
- **Range.** Constants are multiplied with each other only where the product is a normal number in
  any case (`fusegen/ir/ranges.py`). Statistics are float32's: a norm of values whose deviation is
  beyond 1.8e19 over the root of their number has an infinite variance, as in PyTorch's kernels for
  GPUs, and gives its bias. With deviations of 1e18 it is right. Around 1e19 squares about the first
  value may overflow a factor of 3 before Welford's do.
- **Reproducibility.** Two runs on the same device, with the same sizes, alignment and memory
  formats, give the same bits.
- **float64** exists in verification builds only. `torch.autograd.gradcheck` runs on it: the same
  kernels, instantiated for double, against finite differences. These see through a detach, so what
  a chain detaches is held as it was.

- **Precisions.** `fp32_split` is judged as float32 is. `bf16` and `fp16` are judged beside the same
  chain with operands that are rounded alike. In the gradients of the product's operands, an ulp of
  the narrow dtype is allowed at the worst element and a 32nd of it in the norm: a rounding error of
  the tail can turn the rounding of an element.

TF32 is off, norm parameters, running statistics and inputs are random, and outputs are poisoned
before each run.

## Precisions of a float32 product

A module with a linear layer has a `precision`: of its spec, of its constructor, or of the attribute
`fusegen_precision`, whose change takes effect at the next call. It is how a call in float32
multiplies, forward and in both gradients. In 16 bits, under autocast, and where PyTorch's own
operators run, it does nothing. The rest of the chain computes as ever. Where split operands would
not be faster than the library's float32, `fp32_split` multiplies as `ieee`
(`support/product_route.py`).

| precision | products |
|---|---|
| `ieee` | PyTorch's own, by its settings: float32, or TF32 with `torch.backends.cuda.matmul` set so |
| `fp32_split` | three of fp16 pieces on tensor cores, as accurate as float32 |
| `bf16`, `fp16` | of operands that are rounded to that dtype; added up in float32, and not rounded |

**What fp32_split does.** Each row of an operand is scaled by a power of two that brings its largest
finite element into [2^14, 2^15). A scaled element is high + low 2^-11, with both pieces in fp16.
The product is the sum of high high' and 2^-11 (high low' + low high'), with the scales undone. The
sums of tensor cores are truncated, so each sum of 64 terms of high high' (256 where the library
multiplies pieces) is added to one in float32, which rounds. A gradient of the product takes the
pieces of the forward pass. Their scales belong to the terms of its sum there, so they are folded
into the other operand, exactly, before that is split.

**What it guarantees.** An element of at least 2^-26 of its row's largest is held to 2^-22 of
itself, as are all that two pieces hold exactly. The product of the low pieces is left out, which is
at most 2^-22 of a term. So an element of the result is off by at most 3 x 2^-22 of the sum of its
terms' magnitudes, and 2^-22 of itself, besides the rounding of the sum: the form of the bound that
float32 has.

- Smaller elements lose more. Their number is counted for each row as it is split. Where what is lost
  may be more than 2^-22 of an element of the result, the element is computed again in float32.
- An infinity or a NaN has pieces of zero. The elements of the result that depend on it are computed
  again in float32, so that infinities and NaN come out where float32 has them.
- Both are decided on the device, and the host waits for nothing. Such elements take time:
  a row of x with an infinity costs a row of y in float32, one of x or W all of a gradient.
- Subnormal elements count like others. Sums do not overflow before the result does.
- Two runs give the same bits, as everywhere.

**Where its limit lies.**

- It is no float32 bit for bit: results differ from `ieee` in their last bits.
- Where one term is most of a sum, float32 rounds it once, and fp32_split rounds both of its factors:
  its error is up to three times as large there.
- An element of the result that cancels to far below its terms has the error of the terms, as in
  float32.
- Pieces take as much memory as what they are made of. For the backward pass those of x are saved
  where the weight's gradient is wanted, and those of the weight where that of x is, besides x and
  the weight.
- The weight is split in each call. `module.fusegen_keep_pieces = True` says that it stays as it is:
  then a module in evaluation, without gradients of the weight, keeps the pieces of its weight, and
  with them the weight's memory until the next call. That may save a fifth of a call's time. The
  module splits the weight again where that is another tensor, has other memory, or has been written
  to in a way that counts a version. A write through `weight.data`, NumPy or DLPack, by a collective
  operation or by the replay of a CUDA graph counts no version, and is not noticed: call
  `module.eval()` again behind it, which forgets the pieces. `train()` and `to()` do so too. Pieces
  are in no state_dict, copy or file.
- Nothing is kept of inference tensors, by torch.compile, or where a CUDA graph is captured: a replay
  splits the weight as it is then. A captured graph thus reads no memory of the module's but its
  parameters and buffers, which have to stay where they are as for any module.

`bf16` and `fp16` round each operand to nearest: 8 bits of bfloat16, 11 of fp16, where float32 has
24. What is beyond 65504 is infinite in fp16.
"""


@dataclass(frozen=True)
class Row:
    """One line of the CSV."""

    chain: str
    check: str
    shape: str
    dtypes: str
    mode: str
    quantity: str
    fused_largest: float
    eager_largest: float
    bound_largest: float
    fused_norm: float
    eager_norm: float
    bound_norm: float
    ok: bool
    note: str
    device: str

    @classmethod
    def of(cls, chain: str, finding: Finding, device: str) -> Row:
        item = finding.item
        errors = (item.fused, item.eager, item.bound)
        figures = (*(e.largest for e in errors), *(e.norm for e in errors))
        place = (finding.check, finding.shape, finding.dtypes, finding.mode)
        return cls(chain, *place, item.name, *figures, item.ok, item.note, device)

    @property
    def kind(self) -> str:
        """The dtypes, and the precision of the product if that is no dtype's own."""
        return self.dtypes + (f", {SPLIT}" if SPLIT in self.mode else "")

    @property
    def nearness(self) -> float:
        """How much of its bound the worse of the two measures uses up."""
        pairs = ((self.fused_largest, self.bound_largest), (self.fused_norm, self.bound_norm))
        return max(error / limit if limit else 0.0 for error, limit in pairs)


def write_rows(reports: Mapping[str, Report], path: Path, device: str) -> None:
    """All findings as CSV, by chain."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for chain, report in reports.items():
            for finding in report.findings:
                values = asdict(Row.of(chain, finding, device))
                writer.writerow(values | {name: f"{values[name]:.3e}" for name in _FIGURES})


def read_rows(path: Path) -> list[Row]:
    """What write_rows wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(**(line | {name: float(line[name]) for name in _FIGURES} | {"ok": line["ok"] == "True"}))
            for line in csv.DictReader(file)
        ]


def write_page(rows: list[Row], path: Path) -> None:
    """The policy, the seed configurations at full size, and the worst of all else."""
    constants = {"factor": policy.EAGER_FACTOR, "output_ulps": policy.OUTPUT_ULPS, "sum_ulps": policy.SUM_ULPS}
    parts = [_HEAD.format(device=rows[0].device, **constants), _split_errors()]
    failed = [row for row in rows if not row.ok]
    parts.append(
        f"## Measured\n\n{len(rows)} comparisons over {len({r.chain for r in rows})} chains, {len(failed)} failed.\n"
    )
    if failed:
        parts += ["### Failed\n", _table(failed)]
    parts += ["### What was checked\n", _counts(rows)]
    for chain in SEEDS:
        mine = [row for row in rows if row.chain == chain and row.bound_largest]
        full = max((row.shape for row in mine if row.check == "training"), key=_volume, default="")
        text = "Largest error at full size, for each dtype the worse of train and eval.\n"
        parts += [f"### {chain}, {full}\n", text, _full_size([row for row in mine if row.shape == full])]
    parts += [
        "### All chains and shapes\n",
        "For each chain and dtype, the quantity that comes closest to its bound.\n",
    ]
    numerics = [row for row in rows if row.check == "numerics" and row.bound_largest]
    parts.append(_table(_worst(numerics, lambda row: (row.chain, row.kind))))
    parts += ["### Memory\n", "One training step at 512 rows, 1024 x 2048 features, beside eager.\n", _memory(rows)]
    path.write_text("\n".join(parts), encoding="utf-8")


def _split_errors() -> str:
    """What fp32_split was measured to lose, beside the library's float32."""
    if not _SPLIT_ERRORS.is_file():
        return ""
    lines = list(csv.DictReader(_SPLIT_ERRORS.open(encoding="utf-8")))
    products = list(dict.fromkeys(line["product"] for line in lines))
    parts = [_SPLIT_HEAD.format(gpu=lines[0]["gpu"], torch=lines[0]["torch"])]
    parts += [f"| data | terms | {' | '.join(products)} |", "|---" * (2 + len(products)) + "|"]
    for place in dict.fromkeys((line["data"], line["terms"]) for line in lines):
        found = {line["product"]: line for line in lines if (line["data"], line["terms"]) == place}
        figures = [f"{float(found[p]['split']):.1e}, {float(found[p]['library']):.1e}" for p in products]
        parts.append(f"| {' | '.join([*place, *figures])} |")
    return "\n".join(parts) + "\n"


def _volume(shape: str) -> int:
    product = 1
    for extent in shape.split("x"):
        product *= int(extent)
    return product


def _worst(rows: Iterable[Row], key) -> list[Row]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [max(group, key=lambda row: (not row.ok, row.nearness)) for group in groups.values()]


def _counts(rows: list[Row]) -> str:
    lines = ["| check | comparisons | failed |", "|---|---|---|"]
    for check in dict.fromkeys(row.check for row in rows):
        mine = [row for row in rows if row.check == check]
        lines.append(f"| {check} | {len(mine)} | {sum(not row.ok for row in mine)} |")
    return "\n".join(lines) + "\n"


def _full_size(rows: list[Row]) -> str:
    lines = ["| quantity | dtypes | fused | eager | bound |", "|---|---|---|---|---|"]
    chosen = _worst(rows, lambda row: (row.quantity, row.kind))
    for row in sorted(chosen, key=lambda row: row.kind):
        if row.quantity.startswith(("step 1", "step 2")):
            continue
        figures = f"{row.fused_largest:.1e} | {row.eager_largest:.1e} | {row.bound_largest:.1e}"
        lines.append(f"| {row.quantity} | {row.kind} | {figures} |")
    return "\n".join(lines) + "\n"


def _table(rows: list[Row]) -> str:
    lines = [
        "| chain | shape | dtypes | mode | quantity | fused | eager | bound | of the bound |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = f"{row.fused_largest:.1e} | {row.eager_largest:.1e} | {row.bound_largest:.1e} | {row.nearness:.0%}"
        note = f" ({row.note.replace('|', '/')})" if row.note else ""
        lines.append(f"| {row.chain} | {row.shape} | {row.dtypes} | {row.mode} | {row.quantity}{note} | {figures} |")
    return "\n".join(lines) + "\n"


def _memory(rows: list[Row]) -> str:
    lines = ["| chain | dtype | | fused, eager |", "|---|---|---|---|"]
    for row in rows:
        if row.check == "memory":
            lines.append(f"| {row.chain} | {row.dtypes} | {row.quantity} | {row.note} |")
    return "\n".join(lines) + "\n"
