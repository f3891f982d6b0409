"""What a report says at its end: what its chains are expected to take beside eager PyTorch, at the sizes they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fusegen  # noqa: E402
from fusegen.capture import expected as of_places  # noqa: E402
from fusegen.capture.report import Left, Report, Taken  # noqa: E402
from fusegen.capture.rewrite import Wanted, chains_in  # noqa: E402
from fusegen.explain.module import expected as of_spec  # noqa: E402
from fusegen.explain.verdict import one_line  # noqa: E402
from fusegen.plan.load import planned_document  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from tests.capture.graphs import lowered  # noqa: E402

pytestmark = pytest.mark.torch


def found(model: nn.Module, *inputs: Any, **options: Any) -> Report:
    return fusegen.survey(model, inputs, targets=["sm_90"], **options)


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 32000)

    def forward(self, x, target):
        return F.cross_entropy(self.head(x), target)


@pytest.mark.parametrize(
    ("model", "inputs", "sizes"),
    [
        (nn.LayerNorm(64), [torch.randn(96, 64)], "batch 96, channels 64"),
        (nn.LayerNorm(64), [torch.randn(3, 5, 7, 64)], "batch 105, channels 64"),  # dimensions of rows are one
        (nn.BatchNorm2d(6), [torch.randn(4, 6, 9, 11)], "batch 4, channels 6, height 9, width 11"),
        (Loss(), [torch.randn(512, 8), torch.zeros(512).long()], "batch 512, channels 32000"),
    ],
)
def test_sizes_are_those_of_the_place(model: nn.Module, inputs: list[torch.Tensor], sizes: str) -> None:
    (taken,) = found(model, *inputs).taken
    line = of_places.expected([taken.at_place])
    assert line.startswith(f"these chains alone: expected on H100 in float32 at {sizes}: step ")
    planned = planned_document(parse_yaml(taken.at_place, f"{taken.spec}.yaml"))
    assert line.removeprefix("these chains alone: ") == of_spec(planned)


def test_several_places_are_added_and_told_in_a_line() -> None:
    model = nn.Sequential(nn.LayerNorm(2048), nn.Linear(2048, 4096), nn.LayerNorm(4096)).bfloat16()
    report = found(model, torch.randn(8192, 2048, dtype=torch.bfloat16))
    reports = [of_places._report(each.at_place) for each in report.taken]
    totals = [[each.variants[0].totals[side] for each in reports] for side in (0, 1)]
    fused, eager = (sum(getattr(one, name) for side in totals for one in side) for name in ("fused", "eager"))
    last = str(report).splitlines()[-1]
    assert last.startswith("  these chains alone: expected on H100 in bfloat16 at the sizes of these 2 places: step ")
    assert f": {eager / fused:.2f} times as fast" in last
    assert [each.sizes["channels"] for each in reports] == [2048, 4096]


def test_what_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken,) = found(nn.LayerNorm(64), torch.randn(96, 64)).taken
    made = of_places._report(taken.at_place)
    same = [each.model_copy(update={"eager_microseconds": each.fused_microseconds}) for each in made.variants[0].totals]
    variants = (made.variants[0].model_copy(update={"totals": tuple(same)}), *made.variants[1:])
    monkeypatch.setattr(of_places, "_report", lambda _: made.model_copy(update={"variants": variants}))
    line = of_places.expected([taken.at_place])
    assert ": 1.00 times as fast, not worth it here; forward " in line
    assert line.endswith(one_line([made], same, made.sizes))


def test_sizes_that_change_are_told() -> None:
    norm = nn.LayerNorm(64)
    graph = lowered(lambda x: norm(x), torch.randn(6, 3, 64), dynamic=True)
    (chain,) = (each.chain for each in chains_in(graph, Report(Path("specs")), Wanted()))
    assert chain.sizes is None
    (known,) = (each.at_place for each in found(norm, torch.randn(96, 64)).taken)
    changing = Taken("layer_norm", ("layer_norm",), "model.py:1:1")
    report = Report(Path("specs"), 1, [changing])
    told = "expected times beside eager PyTorch are not known: sizes change from call to call"
    assert str(report).splitlines()[-1] == f"  {told}"
    report.taken += [changing, Taken("layer_norm", ("layer_norm",), "model.py:2:1", None, known)]
    assert " at batch 96, channels 64, without 2 places whose sizes change: step " in report.expected()


def test_sizes_that_cannot_be_planned_are_told() -> None:
    (taken,) = found(nn.LayerNorm(64), torch.randn(96, 64)).taken
    text = taken.at_place.replace("batch: 96", "batch: 0")
    assert text != taken.at_place and "are not known" in of_places.expected([text])


def test_nothing_is_expected_of_no_chain() -> None:
    report = found(nn.Linear(4, 4), torch.randn(2, 4))
    assert report.expected() is None and "expected" not in f"{report}{report._repr_html_()}"


def test_a_model_is_left_as_it_is() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), torch.randn(4, 8)
    tensors = {name: (each, each.clone()) for name, each in model.state_dict(keep_vars=True).items()}
    found(model, x)
    for name, each in model.state_dict(keep_vars=True).items():
        assert each is tensors[name][0] and torch.equal(each, tensors[name][1])
    model(x).sum().backward()


def test_a_notebook_shows_a_table(tmp_path: Path) -> None:
    """With all that the text has, escaped."""
    report = found(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)), torch.randn(96, 64), directory=tmp_path)
    report.left.append(Left("a <reason>", ("sort",), "model.py:3:1"))
    shown = report._repr_html_()
    assert "<reason>" not in shown and "left: a &lt;reason&gt;" in shown and "model.py:3:1" in shown
    assert f"<code>{tmp_path}/specs/layer_norm.yaml</code>" in shown and "<td" in shown
    assert repr(report) == str(report)
    for text in ("1 graph: kernels of fusegen in 1 place, 1 region left", "kept: products", report.expected()[1:]):
        assert text in shown
