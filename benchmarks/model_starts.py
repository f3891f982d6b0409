"""How long models take to start, and what a step takes on the host, by torch.compile and by fusegen.

    PYTHONPATH=. python benchmarks/model_starts.py --out DIR [--models NAME ...]    on a CUDA device, otherwise idle

Each model and route has a process of its own, and starts twice, one process at a time: without anything that was
compiled before, and with all of it. DIR gets model_starts.csv. Of the models of models.py:

    first_s, later_s    from the compiler's call to the end of the first step
    host_ms             of a step until Python is done with it, the device idle at the beginning: of the later start
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COLUMNS = ("model", "precision", "route", "first_s", "later_s", "host_ms", "cores", "gpu", "torch")
ROUTES = ("compile", "fusegen")
MODELS = ("resnet50", "vit_base", "bert_base", "gpt2")


def start(model: str, route: str, out: Path) -> dict[str, Any]:
    """A process of models.py: its row."""
    script = str(Path(__file__).with_name("models.py"))
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(out / f"inductor_{model}_{route}")}
    command = [sys.executable, script, "--child", model, route, "--out", str(out)]
    done = subprocess.run(command, env=environment, input="go\n", stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if row.get("problem"):
        raise RuntimeError(f"{model} by {route}: {row['problem']}")
    return row


def main() -> None:
    """Measures and writes the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=MODELS)
    options = parser.parse_args()
    options.out.mkdir(parents=True)  # what is there already would not be a first start
    with (options.out / "model_starts.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for model in options.models:
            for route in ROUTES:
                first, later = (start(model, route, options.out) for _ in range(2))
                row = {"first_s": first["first_s"], "later_s": later["first_s"], "cores": len(os.sched_getaffinity(0))}
                writer.writerow(later | row)
                file.flush()


if __name__ == "__main__":
    main()
