"""Which files of templates/support a directory has: those that its packages use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fusegen.plan.load import planned_file
from fusegen.render.files.includes import included
from fusegen.render.files.support import public_names, support_files, used_support
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from tests.render.rendering import ROOT

INIT = "support/__init__.py"


def files_of(*names: str) -> dict[str, str]:
    """The files of these specs together."""
    return dict(render_all(planned_file(ROOT / "specs" / f"{name}.yaml") for name in names))


def shared(files: dict[str, str]) -> dict[str, str]:
    return {path: text for path, text in files.items() if path.startswith("support/")}


@pytest.mark.parametrize("name", ["geglu", "linear_layernorm_gelu", "batchnorm2d_add_relu", "transformer_mlp_prenorm"])
def test_all_that_is_included_or_imported_is_there(name: str) -> None:
    files = files_of(name)
    homes = public_names(files[INIT])
    for path, text in files.items():
        if path.endswith(".py"):
            nodes = ast.walk(ast.parse(text))
            modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 1}
            modules |= {homes[each] for each in re.findall(r"\b_support\.(\w+)", text)}
            assert {f"support/{module}.py" for module in modules} <= files.keys(), path
        else:
            assert {*included(path, text)} <= files.keys(), path


@pytest.mark.parametrize(
    "name, without",
    [
        (
            "geglu",
            "kernels/row.cuh kernels/column.cuh kernels/tile.cuh dropout.cuh tuning.cuh ranks.cuh ranks.py images.py",
        ),
        ("linear_layernorm_gelu", "kernels/column.cuh kernels/l2.cuh kernels/tile.cuh losses.py regions.py"),
        ("batchnorm2d_add_relu", "kernels/row.cuh kernels/row_reduction.cuh contraction/contraction.cu batches.py"),
    ],
)
def test_what_no_package_uses_is_not(name: str, without: str) -> None:
    missing = {f"support/{path}" for path in without.split()}
    assert missing <= support_files().keys() and not missing & files_of(name).keys()


def test_a_further_package_changes_no_file() -> None:
    one, other = files_of("linear_layernorm_gelu"), files_of("batchnorm2d_add_relu")
    both = files_of("linear_layernorm_gelu", "batchnorm2d_add_relu")
    assert both == one | other and len(shared(both)) > len(shared(one))


def test_what_is_compiled_or_read_at_run_time_is_there() -> None:
    files = files_of("linear_layernorm_gelu")
    for path in (
        "autograd.cpp",
        "python_module.cpp",
        "contraction/contraction.cu",
        "contraction/emulated_pipeline.cuh",
    ):
        assert f"support/{path}" in files
    assert "support/autograd.cpp" in used_support({"a/__init__.py": "_support.Operator()\n"})


def test_words_of_a_spec_are_no_names_of_support() -> None:
    """Such as in the docstring of a module."""
    assert used_support({"a/__init__.py": '"""_support.nothing"""\n'}) == used_support({"a/__init__.py": ""})


def test_each_name_is_where_packages_look_for_it() -> None:
    known = support_files()
    for name, module in public_names(known[INIT]).items():
        body = ast.parse(known[f"support/{module}.py"]).body
        defined = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assigned = [node for node in body if isinstance(node, ast.Assign)]
        defined |= {each.id for node in assigned for each in node.targets if isinstance(each, ast.Name)}
        assert name in defined, f"{module} has no {name}"


def test_other_packages_files_are_of_the_version_that_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = files_of("geglu"), files_of("batchnorm2d_add_relu")
    write_files({**one, **other}, tmp_path)
    path = min(shared(other).keys() - shared(one).keys())
    newer = {**support_files(), path: support_files()[path] + "\n"}
    monkeypatch.setattr("fusegen.render.output.support_files", lambda: newer)
    assert write_files(one, tmp_path) == [path]
    assert (tmp_path / path).read_text(encoding="utf-8") == newer[path]
    unused = sorted(shared(other).keys() - shared(one).keys())
    write_files(one, tmp_path, remove=unused)
    assert not any((tmp_path / each).exists() for each in unused)
