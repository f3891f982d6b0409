"""Specs that become the packages of one output directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_files
from tests.plan.planning import ROOT

TEXT = (ROOT / "specs" / "gemm_add_relu.yaml").read_text(encoding="utf-8")


def write(directory: Path, file: str, name: str, **changes: str) -> Path:
    text = TEXT.replace("name: gemm_add_relu", f"name: {name}")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = directory / file
    path.write_text(text, encoding="utf-8")
    return path


def codes(paths: list[Path]) -> dict[str, list[str]]:
    with pytest.raises(SpecError) as caught:
        planned_files(paths)
    found: dict[str, list[str]] = {}
    for each in caught.value.diagnostics:
        assert each.location is not None
        found.setdefault(Path(each.location.file).name, []).append(each.code)
    return found


def test_in_the_order_of_the_files(tmp_path: Path) -> None:
    paths = [write(tmp_path, f"{name}.yaml", name) for name in ("second", "first")]
    assert [plan.spec.name for plan in planned_files(paths)] == ["second", "first"]


def test_a_file_has_the_name_of_its_spec(tmp_path: Path) -> None:
    fine, other = write(tmp_path, "fine.yml", "fine"), write(tmp_path, "other.yaml", "demo")
    with pytest.raises(SpecError) as caught:
        planned_files([fine, other])
    (found,) = caught.value.diagnostics
    assert found.code == "FG504" and found.message == "the spec 'demo' is in the file 'other.yaml'"
    assert found.location is not None and found.source is not None
    assert found.source[found.location.column - 1 :] == "demo"


def test_every_mistake_in_every_file(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, "chain.yaml", "chain", relu="rely"),
        write(tmp_path, "named.yaml", "other"),
        write(tmp_path, "both.yaml", "three", sm_90="sm_1"),
        write(tmp_path, "fine.yaml", "fine"),
    ]
    (tmp_path / "text.yaml").write_text("name: [", encoding="utf-8")
    found = codes([*paths, tmp_path / "text.yaml", tmp_path / "absent.yaml"])
    assert found == {
        "absent.yaml": ["FG101"],
        "both.yaml": ["FG504", "FG212"],
        "chain.yaml": ["FG203"],
        "named.yaml": ["FG504"],
        "text.yaml": ["FG104"],
    }


@pytest.mark.parametrize("second", ["demo", "Demo"])
def test_two_specs_for_one_directory(tmp_path: Path, second: str) -> None:
    (tmp_path / "more").mkdir()
    paths = [write(tmp_path, "demo.yaml", "demo"), write(tmp_path / "more", f"{second}.yaml", second)]
    assert codes(paths) == {f"{second}.yaml": ["FG208"]}
