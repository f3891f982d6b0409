"""Products in several precisions on a GPU: by our kernel where the GPU has it, and by the library on any."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.build import Request, build_extensions  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.tune.device import current_target  # noqa: E402
from fusegen.verify.subjects.packages import open_subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.precisions import SOURCE, SPEC, product_error  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]

# Code for no more than this has no kernel of ours for the product. Its PTX runs on every GPU.
OLDEST = "sm_80"
# Tensor cores add up 256 terms where the library multiplies, and cut off less than two last places at each 16.
LOST_BY_THE_LIBRARY = 2**-19
ROWS, WIDTH, OUT = 384, 1100, 260  # no multiple of a tile, and of a vector


@pytest.fixture(scope="module", params=["of this GPU", "by the library"])
def subject(request, tmp_path_factory):
    root: Path = tmp_path_factory.mktemp("products")
    target = current_target() if request.param == "of this GPU" else OLDEST
    name = f"precise_{target}"
    text = SPEC.format(name=name).replace("dtypes:", f"targets: [{target}]\ndtypes:")
    (root / f"{name}.yaml").write_text(text, encoding="utf-8")
    plan = plan_file(root / f"{name}.yaml")
    write_files(render_all([module_of(plan)]), root / "generated")
    build_extensions([Request(root / "generated" / name, plan.spec.targets)])
    return open_subject(module_of(plan), root / "generated", device="cuda", cache=root)


@pytest.fixture
def module(subject):
    torch.manual_seed(2)
    made = subject.fused_class(WIDTH, OUT, device="cuda").eval()
    made._fusegen_split_always = made.fusegen_keep_pieces = True
    return made


def test_verification_finds_nothing(subject) -> None:
    wrong = [finding for finding in Suite(subject).other_precisions() if not finding.item.ok]
    assert not wrong, wrong


@pytest.mark.parametrize("source", SOURCE)
def test_rows_of_any_scale_keep_their_accuracy(subject, module, source) -> None:
    torch.manual_seed(4)
    truncated = LOST_BY_THE_LIBRARY if subject.plan.spec.targets == (OLDEST,) else 0.0
    with torch.no_grad():
        module.fc.bias.zero_()
        module.fc.weight.copy_(SOURCE[source](module.fc.weight.cpu()))
    x = SOURCE[source](torch.randn(ROWS, WIDTH)).cuda().requires_grad_()
    grad = SOURCE[source](torch.randn(ROWS, OUT)).cuda()
    y = module(x)
    y.backward(grad)
    weight, dz = module.fc.weight.detach(), grad * module.factor
    assert product_error(y / module.factor, x.detach(), weight.t(), truncated=truncated) < 1
    assert product_error(x.grad, dz, weight, truncated=truncated) < 1
    assert product_error(module.fc.weight.grad, dz.t(), x.detach(), truncated=truncated) < 1


@torch.no_grad()
def test_a_replay_sees_the_weight_as_it_is(module) -> None:
    """Although the module has kept its pieces before the capture, and keeps others after it."""
    x = torch.randn(ROWS, WIDTH, device="cuda")
    for _ in range(2):
        module(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(x)
    for _ in range(3):
        module.fc.weight.mul_(-0.5)
        graph.replay()
        assert torch.equal(y, module(x))


@torch.no_grad()
def test_another_stream_does_not_read_pieces_that_are_being_made(module) -> None:
    x = torch.randn(ROWS, WIDTH, device="cuda")
    expected = module(x)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    module.eval()
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        torch.cuda._sleep(20_000_000)  # about 10 ms
        module(x)
    with torch.cuda.stream(second):
        found = module(x)
    torch.cuda.synchronize()
    assert torch.equal(found, expected)
