"""docs/adding_an_op.md, followed to the letter: what it shows of the sources is there, and its plugin works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fusegen.ops import plugins
from fusegen.ops.catalogue import STEPS
from fusegen.ops.plugins import Plugin

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding_an_op.md").read_text(encoding="utf-8")
SPEC = "linear_tail"
# The op in a region, moved there from behind a layer that PyTorch calls; and where kernels read images.
BLOCK = """\
fusegen: 1
name: tailed_block
dims: {batch: 64, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
  - {op: linear, name: gate, out_features: hidden}
  - {op: squared_tail, slope: 0.5, save: opened}
  - {op: linear, from: x, name: up, out_features: hidden}
  - {op: mul, value: opened}
  - {op: linear, name: down, out_features: features}
"""
CONVOLVED = """\
fusegen: 1
name: tailed_convolution
dims: {batch: 4, width: 3, height: 5, breadth: 6, hidden: 8}
arguments: {width: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, width, height, breadth]}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 3}
  - {op: squared_tail, slope: 0.5}
"""


def block(language: str, words: str) -> str:
    """The one block of code of the page that has these words."""
    (found,) = (text for text in re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE) if words in text)
    return found


@pytest.mark.parametrize(
    ("language", "words", "file"),
    [
        ("python", "class Threshold", "fusegen/ops/thresholds.py"),
        ("cpp", "FUSEGEN_MATH threshold(", "templates/support/activations.cuh"),
        ("python", "def _exp", "fusegen/ir/functions/powers.py"),
    ],
)
def test_what_the_page_shows_is_there(language: str, words: str, file: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    for line in block(language, words).splitlines():
        assert line in source, line


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A directory as pip leaves it: the module, and the entry points of its pyproject.toml."""
    found = tmp_path_factory.mktemp("site")
    (found / "squared_tail.py").write_text(block("python", "class SquaredTail"))
    project = block("toml", "fusegen.ops")
    about = found / "squared_tail-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: squared-tail\nVersion: 1.0\n")
    (line,) = re.findall(r'(?m)^\[project\.entry-points\."fusegen\.ops"\]\n(.*)$', project)
    (about / "entry_points.txt").write_text(f"[fusegen.ops]\n{line.replace(chr(34), '')}\n")
    return found


@pytest.fixture(scope="module")
def specs(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("specs")
    (found / f"{SPEC}.yaml").write_text(block("yaml", "squared_tail"))
    (found / "tailed_block.yaml").write_text(BLOCK)
    (found / "tailed_convolution.yaml").write_text(CONVOLVED)
    return found


def run(*arguments: str, site: Path | None, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Python with the plugin installed, or without."""
    path = ":".join([str(ROOT), *([str(site)] if site else [])])
    given = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(cwd), "COLUMNS": "200"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=given, capture_output=True, text=True)


def fusegen(*arguments: str, site: Path | None, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run("-m", "fusegen", *arguments, site=site, cwd=cwd)


@pytest.fixture(scope="module")
def built(site: Path, specs: Path) -> Path:
    """The generated packages."""
    files = [path.name for path in specs.glob("*.yaml")]
    found = fusegen("build", "--no-compile", "--output", "generated", *files, site=site, cwd=specs)
    assert found.returncode == 0, found.stderr
    return specs / "generated"


def test_the_catalogue_has_the_op(site: Path, specs: Path) -> None:
    found = fusegen("ops", "squared_tail", site=site, cwd=specs)
    assert "x^2 above 0, else slope x" in found.stdout and "slope" in found.stdout


def test_the_package_brings_what_it_needs(built: Path) -> None:
    kernels = (built / SPEC / "kernels.cu").read_text()
    assert kernels.count("squared_tail(A x, A slope)") == kernels.count("squared_tail_backward(A g, A x, A slope)") == 1
    for path in built.rglob("*.py"):
        assert "squared_tail" not in path.read_text() or "import squared_tail" not in path.read_text()


def test_check_with_the_plugin_and_without(built: Path, site: Path, specs: Path) -> None:
    for name, place in ((SPEC, "9:10"), ("tailed_block", "9:10"), ("tailed_convolution", "9:10")):
        arguments = ("check", "--output", "generated", f"{name}.yaml")
        assert fusegen(*arguments, site=site, cwd=specs).returncode == 0
        found = fusegen(*arguments, site=None, cwd=specs)
        assert found.returncode == 2
        assert f"{name}.yaml:{place}: error[FG203]: unknown op 'squared_tail'" in found.stderr
        assert f"a plugin had it when generated/{name} was generated: install that plugin" in found.stderr


EMULATED = """
import sys
from pathlib import Path
import torch
from fusegen.emulate.package import emulate_package
assert "squared_tail" not in sys.modules

def made(name):
    return emulate_package(Path("generated") / name, cache=Path(sys.argv[1]))

module = made("linear_tail").LinearTail(32, 48)
module.fc.weight.data[:, 1] = 0
module.fc.bias.data[:] = torch.linspace(-1, 1, 48)
x = torch.randn(9, 32)
x[0] = 0
pairs = (module, x), (made("tailed_block").TailedBlock(8, 12), torch.randn(2, 5, 8))
for module, x in (*pairs, (made("tailed_convolution").TailedConvolution(3, 8), torch.randn(2, 3, 6, 7))):
    module.fusegen_strict = True
    x.requires_grad_()
    results = []
    for call in (module, module.fusegen_reference):
        y = call(x)
        results.append([y, *torch.autograd.grad(y.square().sum(), [x, *module.parameters()])])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
print("equal")
"""


@pytest.mark.torch
@pytest.mark.nvcc
def test_the_package_runs_without_the_plugin(built: Path, specs: Path, emulation_cache: Path) -> None:
    """Its kernels, on the CPU: results and gradients beside the PyTorch form."""
    found = run("-c", EMULATED, str(emulation_cache), site=None, cwd=specs)
    assert found.stdout == "equal\n", found.stderr


class Entry:
    """As an entry point."""

    def __init__(self, value: object, name: str = "one") -> None:
        self.name, self.value, self._loaded = name, "package:THING", value

    def load(self) -> object:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def of_page() -> Plugin:
    names: dict[str, object] = {"__name__": "squared_tail"}
    exec(block("python", "class SquaredTail").replace("from __future__", "# from __future__"), names)
    return names["PLUGIN"]  # type: ignore[return-value]


def test_plugins_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins.catalogue, "FUNCTIONS", dict(plugins.catalogue.FUNCTIONS))
    good = of_page()
    relu = next(step for step in STEPS if "relu" in step.ops())
    without = Plugin(good.steps, tuple(each.__class__(each.name) for each in good.functions))
    for value, why in (
        (ImportError("no module"), "cannot be loaded: ImportError: no module"),
        (3, "is no Plugin, but of type int"),
        (Plugin((int,)), "has a step that is no class of Step"),  # type: ignore[arg-type]
        (Plugin((relu,)), "has an op 'relu', which there is already"),
        (Plugin((), (plugins.catalogue.FUNCTIONS["relu"],)), "has a function 'relu', which there is already"),
        (without, "has a function 'squared_tail' without a definition in C++"),
    ):
        found = plugins.load(STEPS, [Entry(value)])
        assert found.steps == () and "squared_tail" not in plugins.catalogue.FUNCTIONS
        with pytest.raises(plugins.SpecError, match=rf"FG511.*the plugin 'one' of package:THING {re.escape(why)}"):
            found.check()
    found = plugins.load(STEPS, [Entry(good, "b"), Entry(good, "c")])
    assert found.steps == good.steps and "squared_tail" in plugins.catalogue.FUNCTIONS
    assert ["'c'" in each.message for each in found.problems] == [True]
