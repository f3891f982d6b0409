"""The platform tag of a wheel: auditwheel's rules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fusegen.wheel.errors import WheelError


def platform_tag(wheel: Path) -> str:
    """That of the oldest systems whose C and C++ run time has all that the wheel's libraries take, such as
    `manylinux_2_28_x86_64`; `linux_x86_64` where no policy has.

    torch's libraries count for nothing: the wheel requires torch, which comes with them. Raises WheelError.
    """
    # It is to look for libraries nowhere, neither in this machine's directories: those of the wheel are portable.
    command = [sys.executable, "-m", "auditwheel", "show", "--json", "--ldpaths", "", wheel.name]
    done = subprocess.run(command, cwd=wheel.parent, capture_output=True, text=True)
    try:
        return str(json.loads(done.stdout)["sym_tag"])
    except (ValueError, KeyError, TypeError):
        raise WheelError(f"auditwheel failed\n{done.stderr.rstrip() or done.stdout.rstrip()}") from None
