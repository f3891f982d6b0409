"""Options, directories and graphs that a backend cannot take, and copies of a compiled model."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._dynamo.exc import BackendCompilerFailed  # noqa: E402

from fusegen.backend import Backend  # noqa: E402

pytestmark = pytest.mark.torch


def compiled(backend: Any, **given: Any) -> Any:
    torch._dynamo.reset()
    model = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), backend=backend, **given)
    model(torch.randn(3, 8))
    return model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direktory": "fused"}, "no option is called direktory: fusegen has directory, build, rest, choose"),
        ({"build": "maybe"}, "build must be one of now, never, got 'maybe'"),
        ({"build": None}, "build must be one of now, never, got None"),
        ({"choose": "some"}, "choose must be one of faster, measure, all, got 'some'"),
    ],
)
def test_options_that_are_none(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    given = {"directory": str(tmp_path), "rest": "eager"}
    compiled("fusegen", options={**given, "build": "never"})
    compiled("fusegen", options=given)
    with pytest.raises(BackendCompilerFailed, match=message):
        compiled("fusegen", options={**given, **options})


def test_inductors_options() -> None:
    assert Backend(options={"triton.cudagraphs": True}).options == {"triton.cudagraphs": True}


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendCompilerFailed, match="FG502(.|\n)*give a directory= that can be written"):
        compiled(Backend(tmp_path / "file", rest="eager"))


def test_nothing_is_written_where_nothing_is_built(tmp_path: Path) -> None:
    backend = Backend(tmp_path / "none", rest="eager", build="never")
    compiled(backend)
    (left,) = backend.report.left
    assert left.reason.startswith("there is no package ") and not (tmp_path / "none").exists()


def test_copies_of_a_compiled_model(tmp_path: Path) -> None:
    """Averages of weights are copies, and have the packages that the model has loaded."""
    backend = Backend(tmp_path, rest="eager")
    backend.packages._modules["loaded"] = ModuleType("loaded")
    model = compiled(backend)
    other, x = copy.deepcopy(model), torch.randn(5, 8)
    assert torch.equal(other(x), model(x)) and copy.deepcopy(backend) is backend
    torch.save(model, io.BytesIO())


def test_a_graph_that_is_not_lowered_is_in_the_report(tmp_path: Path) -> None:
    backend = Backend(tmp_path, rest="eager")
    torch._dynamo.reset()
    x = torch.randn(3, 8)
    call = torch.compile(lambda y: torch.func.vmap(torch.sin)(y), backend=backend)
    torch.testing.assert_close(call(x), x.sin())
    (left,) = backend.report.left
    assert left.reason == "a transform of torch.func is a part of it" and "test_faults.py" in left.place
