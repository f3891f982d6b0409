"""Where the regions of a graph are, and what their specs say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.capture.chain import NotAChain  # noqa: E402
from fusegen.capture.partition import Region, partition  # noqa: E402
from fusegen.capture.specs import Specs, read_spec  # noqa: E402
from fusegen.capture.steps import chain_of  # noqa: E402
from fusegen.plan.load import planned_files  # noqa: E402
from tests.capture.graphs import lowered  # noqa: E402
from tests.capture.models import PreNorm, Residual, Tabular  # noqa: E402

pytestmark = pytest.mark.torch

WEIGHT, BIAS = torch.ones(8), torch.zeros(8)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, (8,), WEIGHT, BIAS)


def regions(call: Callable[..., Any], *inputs: Tensor) -> list[Region]:
    return partition(lowered(call, *inputs).graph)


def ops(call: Callable[..., Any], *inputs: Tensor) -> list[list[str]]:
    return [region.ops for region in regions(call, *inputs)]


X, Y = torch.randn(4, 8), torch.randn(4, 8)


def test_what_is_pointwise_around_a_norm() -> None:
    assert ops(lambda x, y: F.silu(norm(x * 2 + y)), X, Y) == [["mul", "add", "layer_norm", "silu"]]


def test_no_norm_no_region() -> None:
    assert ops(lambda x, y: F.silu(x + y) * 2, X, Y) == []


def test_a_sum_that_is_needed_elsewhere_is_a_result() -> None:
    def call(x: Tensor, y: Tensor) -> Tensor:
        total = x + y
        return total @ norm(total).T

    (region,) = regions(call, X, Y)
    assert region.ops == ["add", "layer_norm"] and len(region.results) == 2


def test_a_function_whose_operand_is_stored_anyway_stays_outside() -> None:
    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        y = norm(x)
        return y @ y.T, F.relu(y)

    assert ops(call, X) == [["layer_norm"]]


def test_what_waits_for_a_product_is_in_another_region() -> None:
    """The sum needs the product of the norm's result: one region of both would wait for itself."""

    def call(x: Tensor, w: Tensor) -> Tensor:
        y = norm(x)
        return norm(y + y @ w)

    assert ops(call, X, torch.randn(8, 8)) == [["layer_norm"], ["add", "layer_norm"]]


def test_two_regions_do_not_wait_for_each_other() -> None:
    """a needs y's product and b needs x's: with both sums inside, each would have to be first."""

    def call(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        a, b = norm(x), norm(y)
        return F.relu(a) + b @ w, F.relu(b) + a @ w

    graph = lowered(call, X, Y, torch.randn(8, 8)).graph
    found = partition(graph)
    assert len(found) == 2
    inside = {node: index for index, region in enumerate(found) for node in region.nodes}
    needs = {
        index: {inside.get(each, each) for node in region.nodes for each in node.all_input_nodes}
        for index, region in enumerate(found)
    }

    def reaches(start: Any, goal: int, seen: set[Any]) -> bool:
        more = needs[start] if isinstance(start, int) else {inside.get(each, each) for each in start.all_input_nodes}
        more = {each for each in more if each != start} - seen
        return goal in more or any(reaches(each, goal, seen | more) for each in more)

    assert not (reaches(0, 1, set()) and reaches(1, 0, set()))


def test_nothing_moves_over_a_change_in_place() -> None:
    """The norm's operand is changed behind it: relu and the norm read it at different times."""

    def call(x: Tensor, y: Tensor) -> Tensor:
        a = norm(x)
        x.mul_(2)
        return a + x

    assert ops(call, X.clone(), Y) == [["layer_norm"]]


def test_a_count_that_something_reads_is_a_border() -> None:
    def call(x: Tensor, count: Tensor) -> Tensor:
        y, before = norm(x), count.float()
        count.add_(1)
        return y * before

    assert ops(call, X, torch.tensor(3)) == [["layer_norm"]]
    assert ops(lambda x, count: (norm(x) * 2, count.add_(1))[0], X, torch.tensor(3)) == [["layer_norm", "mul"]]


def test_gradients_switched_off_are_a_border() -> None:
    def call(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = norm(x)
        return F.relu(y) * 2

    assert ops(call, X) == [["layer_norm"]]


def shared(call: Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Any]) -> list[list[str]]:
    """The operators of the regions of a call of a batch norm in training."""
    bn = nn.BatchNorm1d(8)
    return ops(lambda x, y: call(bn, x, y), X, Y)


def test_statistics_of_two_norms_change_in_order() -> None:
    """With relu in the first one's region, the second one's would come before."""

    def call(bn: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        first, second = bn(x), bn(y)
        return F.relu(first + 1), second @ second.T

    assert shared(call) == [["batch_norm"], ["batch_norm"]]


def test_statistics_are_read_where_the_model_reads_them() -> None:
    def call(bn: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        first = bn(x)
        mean = bn.running_mean * 1
        return F.relu(first + 1), mean

    assert shared(call) == [["batch_norm"]]
    assert shared(lambda bn, x, y: F.relu(bn(x) + 1)) == [["batch_norm", "add", "relu"]]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.round(norm(x), decimals=1),
        lambda x: torch.rsub(norm(x), 5, alpha=2),
        lambda x: torch.add(norm(x), x, alpha=2),
        lambda x: norm(x) * float("inf"),
        lambda x: norm(x) + float("nan"),
        lambda x: torch.clamp(norm(x), min=float("-inf"), max=1.0),
        lambda x: norm(x) + 2**60,
        lambda x: norm(x).to(torch.float8_e4m3fn).to(torch.float32) + 1,
        lambda x: norm(x).to(torch.float64) + 1,
    ],
)
def test_what_no_step_says_stays_outside(call: Callable[[Tensor], Tensor]) -> None:
    """Arguments that a step lacks, numbers that no spec can have, and dtypes that are more than a rounding."""
    (region,) = regions(call, X)
    assert region.ops == ["layer_norm"]
    chain_of(region)


def test_a_copy_is_no_cast() -> None:
    """What the copy becomes in place is nothing of the norm's result."""

    def call(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = norm(x)
        copy = y.to(torch.float32, copy=True)
        z = F.relu(copy) + y
        copy.add_(1)
        return y, copy, z

    assert ops(call, X) == [["layer_norm"]]


@pytest.mark.parametrize("shape", [(8,), (1, 8), (4, 1), (1,), ()])
def test_operands_that_broadcast(shape: tuple[int, ...]) -> None:
    assert ops(lambda x, y: norm(x) * y, X, torch.randn(shape)) == [["layer_norm", "mul"]]


@pytest.mark.parametrize("shape", [(3, 1, 1), (5, 8), (1, 5, 8), (2, 3, 5, 8)])
def test_operands_that_no_region_has(shape: tuple[int, ...]) -> None:
    """Over other rows, and more dimensions than the value."""
    assert ops(lambda x, y: norm(x) * y, torch.randn(3, 5, 8), torch.randn(shape)) == [["layer_norm"]]


def test_a_norm_over_other_dimensions_is_none() -> None:
    assert ops(lambda x: F.layer_norm(x, (4, 8)) + 1, torch.randn(2, 4, 8)) == []
    assert ops(lambda x: F.group_norm(x, 2) + 1, torch.randn(2, 4, 1, 1, 1, 8)) == []


@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 8), (2, 4, 8, 7), (2, 4, 8, 7, 3)])
def test_norms_over_positions(shape: tuple[int, ...]) -> None:
    assert ops(lambda x: F.silu(F.group_norm(x, 2)), torch.randn(shape)) == [["group_norm", "silu"]]
    if len(shape) > 2:
        assert ops(lambda x: F.relu(F.instance_norm(x)), torch.randn(shape)) == [["instance_norm", "relu"]]


def test_sizes_that_change(tmp_path: Path) -> None:
    """The channels have to be a number, and nothing else has to."""
    graph = lowered(lambda x: norm(x) + 1, X, dynamic=True).graph
    (region,) = partition(graph)
    assert isinstance(region.frame.sizes[0], str) and region.frame.channels == 8


# Chains


def specs(directory: Path, call: Callable[..., Any], *inputs: Tensor) -> list[str]:
    """The names of the specs of a graph's regions, which are written and can be planned."""
    found = Specs(directory, ["sm_90"])
    names = [found.place(chain_of(region), {"float32"}) for region in regions(call, *inputs)]
    found.write()
    planned_files(sorted(directory.glob("*.yaml")))
    return names


def test_one_spec_for_a_kind_of_chain(tmp_path: Path) -> None:
    wide, other = Tabular(8), Tabular(12)
    assert specs(tmp_path, wide, torch.randn(5, 8)) == ["batch_norm_gelu"] * 3
    assert specs(tmp_path, other, torch.randn(5, 12)) == ["batch_norm_gelu"] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["batch_norm_gelu.yaml"]


def test_the_same_text_from_run_to_run(tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        specs(tmp_path / name, nn.Sequential(Residual(4), Residual(4)), torch.randn(2, 4, 5, 5))
        texts.append({path.name: path.read_text() for path in (tmp_path / name).iterdir()})
    assert texts[0] == texts[1] and len(texts[0]) == 2


def test_a_spec_for_more_dtypes_serves(tmp_path: Path) -> None:
    (region,) = regions(lambda x: norm(x) + 1, X)
    found = Specs(tmp_path, ["sm_90"])
    assert found.place(chain_of(region), {"float32", "bfloat16"}) == "layer_norm_add_mixed_bf16"
    assert found.place(chain_of(region), {"bfloat16"}) == "layer_norm_add_mixed_bf16"
    assert found.place(chain_of(region), {"float16"}) == "layer_norm_add_f16"


def test_a_spec_has_the_modes_of_a_graph(tmp_path: Path) -> None:
    def add_norm(x: Tensor, y: Tensor) -> Tensor:
        return F.layer_norm(x + y, (8,))

    both, found = {"float32", "bfloat16"}, Specs(tmp_path, ["sm_90"])
    chains = [chain_of(each) for y in (X + 1, X.bfloat16()) for each in regions(add_norm, X, y)]
    # A chain with tensors of float32 alone takes none of its dtypes from the spec.
    given = [(chains[1], both), (chains[0], {"float32"}), (chains[1], both)]
    assert [found.place(*each) for each in given] == ["add_layer_norm_mixed_bf16"] * 3
    found.write()
    path = tmp_path / "add_layer_norm_mixed_bf16.yaml"
    modes = [{"x": "float32", "other": each} for each in ("bfloat16", "float32")]
    written = read_spec(path)
    assert written["modes"] == modes and written["dtypes"] == ["float32", "bfloat16"]
    # Such a spec is not changed later on, and one without modes has all.
    path.write_text(path.read_text().replace("  - {x: float32, other: bfloat16}\n", ""))
    assert Specs(tmp_path, ["sm_90"]).place(chains[0], both) == path.stem
    assert Specs(tmp_path, ["sm_90"]).place(chains[1], both) == f"{path.stem}_2"
    path.write_text(path.read_text().replace("{x: float32, other: float32}", "{x: float32}"))
    assert Specs(tmp_path, ["sm_90"]).place(chains[1], both) == path.stem
    path.write_text(path.read_text().replace("modes:\n  - {x: float32}\n", ""))
    assert Specs(tmp_path, ["sm_90"]).place(chains[1], both) == path.stem


def test_a_spec_that_is_there_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "layer_norm_add.yaml"
    specs(tmp_path, lambda x: norm(x) + 1, X)
    text = path.read_text().replace("  batch: 32", "  batch: 77  # ours")
    path.write_text(text)
    assert specs(tmp_path, lambda x: norm(x) + 1, X) == ["layer_norm_add"] and path.read_text() == text


def test_the_text(tmp_path: Path) -> None:
    specs(tmp_path, PreNorm(8), torch.randn(3, 5, 8))
    text = (tmp_path / "add_rms_norm.yaml").read_text()
    assert text.endswith("""\
inputs:
  x: [batch, channels]
  other: [batch, channels]
dtypes: [float32]
targets: [sm_90]
chain:
  - {op: add, input: other, save: value}
  - {op: rms_norm, name: norm, eps: norm_eps}
outputs: [value, result]
""")


@pytest.mark.parametrize(
    ("call", "chain"),
    [
        (lambda x: 2 - norm(x), [{"op": "sub", "constant": 2, "swap": True}]),
        (lambda x: norm(x) / 3, [{"op": "div", "constant": 3}]),
        (
            lambda x: norm(x) - 0.5 * WEIGHT,
            [{"op": "sub", "parameter": "other", "shape": ["channels"], "init": "ones"}],
        ),
        (lambda x: F.leaky_relu(norm(x), 0.2), [{"op": "leaky_relu", "negative_slope": 0.2}]),
        (lambda x: torch.clamp(norm(x), max=1), [{"op": "clamp", "max": 1}]),
        (lambda x: norm(x) ** 3, [{"op": "pow", "exponent": 3}]),
        (lambda x: torch.multiply(norm(x), 2), [{"op": "mul", "constant": 2}]),
        (lambda x: F.gelu(norm(x), approximate="tanh"), [{"op": "gelu", "approximate": "tanh"}]),
    ],
)
def test_steps(call: Callable[..., Any], chain: list[dict[str, Any]]) -> None:
    (region,) = regions(call, X)
    first, *rest = chain_of(region).data["chain"]
    assert first["op"] == "layer_norm" and rest == chain


def test_what_changes_nothing_of_an_input_and_others_take_is_the_input() -> None:
    """A cast, and a dropout that drops nothing, are nothing of a chain."""

    def cast(x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x @ x.T @ x).to(torch.bfloat16)
        return y @ y.T, norm(y + 1)

    def dropped(x: Tensor) -> Tensor:
        y = F.dropout(F.dropout(x, 0.0), 0.5, training=False)
        return y @ norm(y).T

    for call, wanted in ((cast, ["add", "layer_norm"]), (dropped, ["layer_norm"])):
        (region,) = regions(call, X)
        assert region.ops == wanted and len(chain_of(region).data["chain"]) == len(wanted)


def test_a_norm_by_hand_ends_with_what_takes_a_number_of_each_row() -> None:
    """One without a weight, whose input is stored in any case."""
    (region,) = regions(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), X)
    assert region.ops == ["pow", "mean", "add", "rsqrt", "mul"]
    assert chain_of(region).data["chain"][-1] == {"op": "mul", "input": "x"}


@pytest.mark.parametrize(
    ("call", "chain"),
    [
        (lambda x: F.layer_norm(x, (8,), None, BIAS) + 1, ["layer_norm", "add shift [channels]", "add"]),
        (lambda x: F.batch_norm(x, None, None, WEIGHT, training=True), ["batch_norm", "mul scale [channels]"]),
        (
            lambda x: F.relu(F.batch_norm(x.view(1, 8, 4), BIAS, WEIGHT, WEIGHT * 2, training=True)),
            ["batch_norm", "mul scale [channels, 1]", "relu"],
        ),
        (
            lambda x: F.group_norm(x.view(1, 8, 2, 2), 2, None, BIAS) * BIAS.view(8, 1, 1),
            ["group_norm", "add shift [channels, 1, 1]", "mul scale [channels, 1, 1]"],
        ),
        (
            lambda x: F.instance_norm(x.view(1, 8, 4), weight=WEIGHT) + 1,
            ["instance_norm", "mul scale [channels, 1]", "add"],
        ),
    ],
    ids=["layer_norm", "batch_norm", "of images", "group_norm", "instance_norm"],
)
def test_a_norm_with_one_of_weight_and_bias(call: Callable[..., Any], chain: list[str], tmp_path: Path) -> None:
    """As in convolutions whose weights are standardized."""
    (region,) = regions(call, X)
    found = []
    for each in chain_of(region).data["chain"]:
        shape = [str(each["shape"]).replace("'", "")] if "shape" in each else []
        found.append(" ".join([each["op"], *([each["parameter"]] if shape else []), *shape]))
    assert found == chain
    assert len(specs(tmp_path, call, X)) == 1


def test_float64_has_no_kernels() -> None:
    (why,) = _reasons(regions(lambda x: F.layer_norm(x, (8,)) + 1, X.double()))
    assert str(why) == "there are no kernels for torch.float64"


def test_a_chain_that_cannot_be_planned_is_refused(tmp_path: Path) -> None:
    """Before anything of it is written: the other regions of the graph have kernels."""
    (region,) = regions(lambda x: norm(x) + 1, X)
    chain = chain_of(region)
    chain.data["chain"].append({"op": "add", "value": "nowhere"})
    found = Specs(tmp_path, ["sm_90"])
    with pytest.raises(NotAChain, match="it is no chain: .*nowhere"):
        found.place(chain, {"float32"})
    found.write()
    assert list(tmp_path.iterdir()) == []


def _reasons(found: list[Region]) -> list[NotAChain]:
    reasons = []
    for region in found:
        try:
            chain_of(region)
        except NotAChain as why:
            reasons.append(why)
    return reasons


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: F.relu(norm(x) + 1) + F.relu(y),
        lambda x, y: norm(F.relu(x) + F.gelu(y)),
        lambda x, y: norm(x) * torch.tanh(F.relu(y) * 2),
    ],
    ids=["behind", "in front", "two functions"],
)
def test_functions_of_a_further_input_alone_stay_outside(call: Callable[..., Any]) -> None:
    """A chain begins with one input; what is made of another one is an input."""
    (region,) = regions(call, X, X.clone())
    data = chain_of(region).data
    assert sum("from" in step for step in data["chain"]) == 0 and len(data["inputs"]) == 2
    assert not {"tanh", "gelu"} & {step["op"] for step in data["chain"]}


def test_functions_of_the_first_input_are_inside() -> None:
    (region,) = regions(lambda x: norm(x) + F.relu(x), X)
    assert [step["op"] for step in chain_of(region).data["chain"]] == ["layer_norm", "relu", "add"]


def test_a_spec_says_which_sizes_are_made_up(tmp_path: Path) -> None:
    images = torch.randn(2, 8, 4, 4)
    (name,) = specs(tmp_path, lambda x: F.relu(F.group_norm(x, 2)), images)
    (rows,) = specs(tmp_path, lambda x: norm(x) + 1, X)
    said = {each: (tmp_path / f"{each}.yaml").read_text().partition("fusegen: 1\n")[0] for each in (name, rows)}
    assert "\n# batch, height, width are made up, channels is from one place in the model.\n" in said[name]
    assert "\n# batch is made up, channels is from one place in the model.\n" in said[rows]
    assert "# A size would be fixed by a number in the place of its name in inputs" in said[rows]
    assert all(line.startswith("# ") and len(line) <= 120 for line in said[name].splitlines())


def test_a_scale_of_each_sample(tmp_path: Path) -> None:
    """As diffusion transformers have it. Of images in four dimensions there is none beside rows."""

    def call(x: Tensor, scale: Tensor, y: Tensor) -> Tensor:
        return norm(x + scale[:, None] * y) * (1 + scale)[:, None]

    x, y, scale = torch.randn(2, 5, 8), torch.randn(2, 5, 8), torch.randn(2, 8)
    (region,) = regions(call, x, scale, y)
    assert region.ops == ["mul", "add", "layer_norm", "mul"]
    data = chain_of(region).data
    full, of_sample = ["batch", "tokens", "channels"], ["batch", "channels"]
    assert list(data["inputs"].values()) == [full, of_sample, full, of_sample]
    assert chain_of(region).sizes == {"batch": 2, "tokens": 5, "channels": 8}
    assert len(specs(tmp_path, call, x, scale, y)) == 1
    assert ops(lambda x, s: norm(x) * s[:, None, None], torch.randn(2, 3, 5, 8), scale) == [["layer_norm"]]
