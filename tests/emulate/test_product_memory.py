"""The memory of a linear layer's result in the backward pass: its gradient's, where the graph is not retained and
nobody else holds the result."""

from __future__ import annotations

import functools
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: kept_{name}
about: a linear layer and what follows
dims: {{batch: 64, width: 16, features: 32}}
arguments: {{width: {{type: dim}}, features: {{type: dim}}}}
inputs: {{x: [batch, width]{inputs}}}
dtypes: [float32, bfloat16]
chain:
  - {{op: linear, name: fc, out_features: {size}}}
{steps}
"""
STEPS = {
    "gelu": ("", "  - {op: gelu}"),
    "residual": (", z: [batch, features]", "  - {op: tanh}\n  - {op: add, input: z}"),
    "parts": ("", "  - {op: chunk, parts: [value, gate], running: gate}\n  - {op: gelu}\n  - {op: mul, value: value}"),
    "loss": (", target: [batch]", "  - {op: cross_entropy, target: target}"),
}
ROWS, FEATURES = 24, 48
PRODUCT = ROWS * FEATURES * 4  # bytes
each_chain = pytest.mark.parametrize("name", STEPS)


@pytest.fixture(scope="module")
def classes(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("product")
    found = {}
    for name, (inputs, steps) in STEPS.items():
        size = "2 * features" if name == "parts" else "features"
        plan = write(f"kept_{name}", SPEC.format(name=name, inputs=inputs, steps=steps, size=size), root)
        package = emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)
        found[name] = getattr(package, plan.spec.class_name)
    return found


def called(classes, name: str, dtype=torch.float32, width: int = 8, features: int = FEATURES, rows: int = ROWS):
    """A call of a module with the same values each time, and what has gradients."""
    torch.manual_seed(0)
    module = classes[name](width, features).to(dtype)
    module.fusegen_strict = True
    x, z = (torch.randn(rows, size, dtype=dtype).requires_grad_() for size in (width, features))
    others = {"residual": [z], "loss": [torch.arange(rows)]}.get(name, [])
    sources = [x, *(each for each in others if each.requires_grad), *module.parameters()]
    return lambda: module(x, *others), sources


def gradients(y, sources, **options) -> list[torch.Tensor]:
    grad = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
    return list(torch.autograd.grad(y, sources, grad, **options))


def recorded(run):
    """What a function returns, and whether some op overwrote a product in it."""
    with profile(activities=[ProfilerActivity.CPU]) as record:
        found = run()
    return found, any("_backward_in_place_" in event.name for event in record.events())


def same(found, expected) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


@each_chain
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bits_are_those_of_a_retained_graph(classes, name: str, dtype) -> None:
    call, sources = called(classes, name, dtype)
    y = call()
    for _ in range(2):
        expected, is_in_place = recorded(lambda: gradients(y, sources, retain_graph=True))
        assert not is_in_place
    found, is_in_place = recorded(lambda: gradients(y, sources))
    assert is_in_place and same(found, expected)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        gradients(y, sources)


def live_bytes(run) -> tuple[float, float]:
    """What is allocated when a backward op begins and the most until it ends, in tensors like the product."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
    events = record.profiler.kineto_results.events()
    # Autograd's node has the name of an op, too, and begins before it.
    begin, end = max((each.start_ns(), each.end_ns()) for each in events if "_gelu_backward" in each.name())
    changes = sorted((each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]")
    live = [(time, sum(size for _, size in changes[: index + 1])) for index, (time, _) in enumerate(changes)]
    before = [size for time, size in live if time <= begin][-1]
    most = max(size for time, size in live if begin < time <= end)
    return before / PRODUCT, most / PRODUCT


@pytest.mark.parametrize(
    ("width", "features", "retain", "expected"),
    [
        # Beside y, which the caller holds: the product, the gradient of y, and the product's if it has its own memory.
        (8, FEATURES, True, 4),
        (8, FEATURES, False, 3),
        # Rows that do not begin with a vector.
        (8, FEATURES + 1, False, 4),
        # The operands' gradients are the most: 10 tensors for x and 20 for the weight. Beside y there is the product's,
        # and the product where the graph is retained.
        (10 * FEATURES, FEATURES, True, 3 + 30),
        (10 * FEATURES, FEATURES, False, 2 + 30),
        (10 * FEATURES, FEATURES + 1, False, 2 + 30.5),
    ],
)
def test_allocated_bytes(classes, width: int, features: int, retain: bool, expected: int) -> None:
    call, sources = called(classes, "gelu", width=width, features=features)

    def step() -> None:
        y = call()
        torch.autograd.grad((y * 2).sum(), sources, retain_graph=retain)

    before, most = live_bytes(step)
    assert before == pytest.approx(3, abs=0.1) and most == pytest.approx(expected, abs=0.4)


def ops(classes, name: str):
    """The forward op of a chain and the backward op that overwrites the product."""
    operator = sys.modules[classes[name].__module__]._fused
    return operator.forward, operator.package.find_op("backward_in_place")


def arguments(op, named) -> list:
    return [named.get(each.name) for each in op._schema.arguments]


def test_the_gradient_lies_in_the_product(classes) -> None:
    forward, in_place = ops(classes, "gelu")
    x = torch.randn(ROWS, FEATURES)
    named = {"x": x, "fc_weight": torch.eye(FEATURES), "fc_bias": torch.zeros(FEATURES)}
    named |= {"fc_input": x, "_dtype_mode": 0, "_precision": 0, "_needs": [True, False, False]}
    named["grad_y"] = torch.randn(ROWS, FEATURES)
    _, product = forward(*arguments(forward, named))
    named["fc_product"] = product
    written = [each.name for each in in_place._schema.arguments if each.alias_info and each.alias_info.is_write]
    assert torch.equal(product, x) and written == ["fc_product"]
    (grad,) = in_place(*arguments(in_place, named))
    assert torch.equal(product, grad) and not torch.equal(product, x)  # dz times one


def forward_arguments(classes, width: int = 8):
    forward, _ = ops(classes, "gelu")
    torch.manual_seed(0)
    named = {"fc_input": torch.randn(ROWS, width).requires_grad_(), "_dtype_mode": 0, "_precision": 0}
    named |= {"fc_weight": torch.randn(FEATURES, width).requires_grad_(), "fc_bias": torch.randn(FEATURES)}
    return forward, arguments(forward, named)


@pytest.mark.parametrize("held", ["itself", "a view", "nothing"])
def test_a_product_that_others_hold_stays(classes, held: str) -> None:
    forward, given = forward_arguments(classes)
    y, product = forward(*given)
    before = product.clone()
    kept = {"itself": product, "a view": product[1:], "nothing": None}[held]
    del product
    _, is_in_place = recorded(lambda: gradients(y, given[:1]))
    assert is_in_place is (held == "nothing")
    assert kept is None or torch.equal(kept, before if held == "itself" else before[1:])


def test_a_product_that_was_written_is_refused(classes) -> None:
    forward, given = forward_arguments(classes)
    y, product = forward(*given)
    product.add_(1)
    del product
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(y, given[:1])


@each_chain
def test_what_hooks_hold_stays(classes, name: str) -> None:
    call, sources = called(classes, name)
    expected = gradients(call(), sources)
    packed = []

    def pack(tensor):
        packed.append((tensor, tensor.detach().clone()))
        return len(packed) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda index: packed[index][0]):
        y = call()
    found, is_in_place = recorded(lambda: gradients(y, sources))
    assert not is_in_place and same(found, expected)
    assert packed and all(torch.equal(tensor, before) for tensor, before in packed)


def test_memory_that_hooks_hold_in_other_ways_stays(classes) -> None:
    call, sources = called(classes, "gelu")
    expected = gradients(call(), sources)
    packed = []

    def pack(tensor):
        packed.append((tensor.detach().numpy().copy(), tensor.detach().clone()))
        return len(packed) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda index: torch.from_numpy(packed[index][0])):
        y = call()
    assert same(gradients(y, sources), expected)
    assert packed and all(torch.equal(torch.from_numpy(array), before) for array, before in packed)


@each_chain
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(classes, name: str, use_reentrant: bool) -> None:
    call, sources = called(classes, name)
    expected = gradients(call(), sources)
    with torch.no_grad():
        dummy = torch.zeros(())
    y = checkpoint(lambda _: call(), dummy.requires_grad_(), use_reentrant=use_reentrant)
    for each in sources:
        each.grad = None
    y.backward(torch.linspace(-1, 1, y.numel()).view(y.shape))
    assert same([each.grad for each in sources], expected)


def test_two_uses_of_one_module(classes) -> None:
    call, sources = called(classes, "gelu")
    single = gradients(call(), sources)
    found, is_in_place = recorded(lambda: gradients(torch.cat([call(), call()])[:ROWS] + 0 * call(), sources))
    assert is_in_place and all(torch.allclose(one, other) for one, other in zip(found, single, strict=True))


def test_a_graph_that_threads_share(classes) -> None:
    """Those that retain it all get the same, also those that have begun when another one frees it: the emulator runs
    their kernels one after the other."""
    call, sources = called(classes, "gelu", rows=16 * ROWS)
    expected = gradients(call(), sources)
    for _ in range(5):
        y, found = call(), []

        def run(retain: bool, y=y, found=found) -> None:
            try:
                found.append(gradients(y, sources, retain_graph=retain))
            except RuntimeError as error:
                assert "backward through the graph a second time" in str(error)

        threads = [threading.Thread(target=run, args=(retain,)) for retain in (*[True] * 8, False)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert found and all(same(each, expected) for each in found)


def test_modes_see_the_op_without_writes(classes) -> None:
    call, sources = called(classes, "gelu")
    counts = []
    for retain in (True, False):
        run = functools.partial(gradients, call(), sources, retain_graph=retain)
        with FlopCounterMode(display=False) as counter:
            _, is_in_place = recorded(run)
        assert not is_in_place
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


@each_chain
def test_compiled_graphs_have_the_op_without_writes(classes, name: str) -> None:
    """And no alias of the product."""
    call, sources = called(classes, name)
    expected = gradients(call(), sources)
    graphs = []

    def keep(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return make_boxed_func(graph)

    compiled = torch.compile(call, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True)
    found, is_in_place = recorded(lambda: gradients(compiled(), sources))
    assert not is_in_place and same(found, expected)
    own = [name.split("_")[2] for name in sum(graphs, []) if name.startswith("fusegen")]
    assert own == ["forward", "backward"] and not any("detach" in name for name in sum(graphs, []))
