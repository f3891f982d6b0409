"""Times batch norm over many rows in one launch that reads the second time from the L2: one_launch.cu, which says how.

    PYTHONPATH=. python benchmarks/one_launch.py --out DIR     on a CUDA device from 9.0 on, with nvcc

A line of DIR/one_launch.csv for each size, pass, dtype and distance between the two reads (`lag`, in panels of
columns); `ahead` is by how many panels the first read is asked for early. `copy_us` is a device copy of what the pass
moves at least.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from fusegen.build.toolchain import find_toolchain

SOURCE = Path(__file__).with_suffix(".cu")
FLAGS = ("-O3", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        program = Path(temporary) / SOURCE.stem
        toolchain = find_toolchain()
        command = [*toolchain.nvcc_command(), *FLAGS, *toolchain.nvcc.library_flags(), "-o", os.fspath(program)]
        subprocess.run([*command, os.fspath(SOURCE)], check=True)
        lines = subprocess.run([os.fspath(program)], check=True, capture_output=True, text=True).stdout
    (options.out / f"{SOURCE.stem}.csv").write_text(lines, encoding="utf-8")
    print(lines, end="")


if __name__ == "__main__":
    main()
