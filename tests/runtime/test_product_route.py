"""Where a float32 product splits its operands: beside the times that were measured, and in a call."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from tests.emulate.building import module_class, write  # noqa: E402
from tests.emulate.precisions import SPEC  # noqa: E402

MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "split_times_h200.csv"
H200 = ((9, 0), 132)
WAYS = {"inference": (True, False), "an eval forward": (False, False), "training": (False, True)}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    root = tmp_path_factory.mktemp("route")
    return module_class(write("route", SPEC.format(name="route"), root), root)


def precisions_of(package) -> dict:
    """support/precisions.py, as the package has it."""
    return package._fusegen_run.__globals__["result_of"].__globals__["call_operator"].__globals__


@pytest.fixture(scope="module")
def route(package):
    """support/product_route.py, as the package has it."""
    return precisions_of(package)["is_worth_splitting"].__globals__


def times(line: dict[str, str], way: str) -> tuple[float, float]:
    """Microseconds with split operands, and without."""
    kept, gradients = WAYS[way]
    figure = {name: float(text) for name, text in line.items() if name not in ("gpu", "torch", "cuda")}
    split = ["split_x", "y", *([] if kept else ["split_weight"])]
    whole = ["library_y"]
    if gradients:
        split += ["split_dz_by_rows", "split_dz_by_columns", "dx", "dw"]
        whole += ["library_dx", "library_dw"]
    return sum(map(figure.get, split)), sum(map(figure.get, whole))


@pytest.mark.parametrize("way", WAYS)
def test_the_choice_is_the_fastest_that_was_measured_or_nearly(route, way) -> None:
    kept, gradients = WAYS[way]
    chosen, best, splits = 0.0, 0.0, 0
    for line in csv.DictReader(MEASURED.open()):
        sizes = tuple(int(float(line[name])) for name in ("rows", "channels", "in_features"))
        split, whole = times(line, way)
        if min(sizes if gradients else sizes[2:]) < route["LEAST_TERMS"]:
            whole = split = min(split, whole)  # accuracy decides
        worth = route["is_worth_splitting"](*H200, *sizes, weight_kept=kept, gradients=gradients)
        splits += worth
        taken = split if worth else whole
        chosen, best = chosen + taken, best + min(split, whole)
        assert taken < 1.25 * min(split, whole), (sizes, split, whole)
    assert splits > 10 and chosen < 1.01 * best


def test_short_sums_are_the_librarys(route) -> None:
    worth, least = route["is_worth_splitting"], route["LEAST_TERMS"]
    for gradients in (False, True):
        given = {"weight_kept": True, "gradients": gradients}
        assert not worth(*H200, 65536, 65536, least - 1, **given)
        assert worth(*H200, 65536, 65536, 4096, **given)
    # The library's sums of pieces are truncated in longer chunks.
    assert not worth((8, 0), 108, 65536, 65536, route["LEAST_TERMS_OF_LIBRARY"] - 1, **given)
    assert worth((8, 0), 108, 65536, 65536, route["LEAST_TERMS_OF_LIBRARY"], **given)
    # A gradient is a sum over rows, or over channels.
    assert not worth(*H200, least - 1, 65536, 65536, weight_kept=True, gradients=True)
    assert worth(*H200, least - 1, 65536, 65536, weight_kept=True, gradients=False)


@pytest.mark.parametrize("capability", [(7, 5), (8, 6), (8, 9), (12, 0)])
def test_gpus_whose_tensor_cores_gain_nothing(route, capability) -> None:
    assert not route["is_worth_splitting"](capability, 128, 8192, 8192, 8192, weight_kept=True, gradients=False)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0), (10, 3)])
def test_gpus_whose_tensor_cores_gain(route, capability) -> None:
    assert route["is_worth_splitting"](capability, 128, 8192, 8192, 8192, weight_kept=False, gradients=True)


def test_what_a_call_asks(package, monkeypatch) -> None:
    """Of its own sizes; as with gradients in training, whether they are on or not: a checkpoint runs both ways."""
    precisions = precisions_of(package)
    asked = []

    def worth(*sizes, **given) -> bool:
        asked.append((*sizes, given["weight_kept"], given["gradients"]))
        return True

    monkeypatch.setitem(precisions, "is_worth_splitting", worth)
    properties = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setitem(precisions, "_may_keep", lambda module, weight: not module.training)
    module = package(24, 10)

    def choose(training: bool, gradients: bool) -> tuple:
        x = SimpleNamespace(
            device=torch.device("cuda"), requires_grad=False, shape=(3, 5, 24), numel=lambda: 3 * 5 * 24
        )
        with torch.set_grad_enabled(gradients):
            precisions["choose_precision"](module.train(training), x, module.fc.weight, torch.float32)
        return asked.pop()

    assert choose(training=True, gradients=True) == ((9, 0), 132, 15, 10, 24, False, True)
    with monkeypatch.context() as exporting:  # a free number of rows is compared with nothing
        exporting.setattr(torch.compiler, "is_compiling", lambda: True)
        exporting.setattr(torch.compiler, "_is_exporting_flag", True)
        assert choose(training=True, gradients=True)[2] == precisions["_EXPORTED_ROWS"]
    assert choose(training=True, gradients=False) == ((9, 0), 132, 15, 10, 24, False, True)
    assert choose(training=False, gradients=True) == ((9, 0), 132, 15, 10, 24, True, True)
    assert choose(training=False, gradients=False) == ((9, 0), 132, 15, 10, 24, True, False)
    module.fc.weight.requires_grad_(False)
    assert choose(training=True, gradients=True)[-1] is False
    module.fusegen_precision = "ieee"
    assert precisions["choose_precision"](module, None, module.fc.weight, torch.float32) == 0 and not asked
