"""Every function of the catalogue on a GPU: every 16-bit argument, and float32 ones of every size.

`pytest -m gpu -s tests/gpu/test_tails.py` prints the worst of each, in ulps of the result.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.build.builder import Request, build_extensions  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.tune.device import current_target  # noqa: E402
from fusegen.verify.subjects.packages import open_subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.verify.functions_of_one import functions_of_one  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]


@pytest.fixture(scope="module")
def findings(tmp_path_factory) -> list:
    """Of all functions: they are compiled side by side."""
    root = tmp_path_factory.mktemp("functions")
    plans = functions_of_one(root, current_target())
    output = root / "generated"
    write_files(render_all(map(module_of, plans.values())), output)
    build_extensions([Request(output / name, plan.spec.targets) for name, plan in plans.items()])
    found = []
    for name, plan in plans.items():
        suite = Suite(open_subject(module_of(plan), output, device="cuda", cache=root))
        for finding in suite.tails():
            mark = "" if finding.item.ok else "  <-- WRONG"
            print(f"{name:28} {finding.dtypes:9} {finding.item.name:16} {finding.item.note}{mark}")
            found.append((name, finding))
    return found


def test_tails_are_as_eagers(findings) -> None:
    assert len(findings) > 3 * 2 * 15
    wrong = [f"{name} {f.dtypes} {f.item.name}: {f.item.note}" for name, f in findings if not f.item.ok]
    assert not wrong, "\n".join(wrong)
