"""No circle between modules, and no import from a lower package of a higher one."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# From the lowest to the highest. A package imports from itself and from the lines above its own; one whose folders have
# lines, as `plan.programs`, has its other modules in its own line.
LAYERS = (
    ("errors", "progress", "version"),
    ("paths", "numerics", "files"),
    ("spec", "ir"),
    ("chain",),
    ("ops",),
    ("plan.launches",),
    ("plan.programs",),
    ("plan.proofs",),
    ("plan.schedules",),
    ("plan.regions",),
    ("plan.modules",),
    ("plan.sizes",),
    ("plan.tunings",),
    ("plan",),
    ("render.text",),
    ("render.programs",),
    ("render.ops",),
    ("render.python",),
    ("render.files",),
    ("render", "reference"),
    ("build", "check", "runtime", "standalone"),
    ("emulate", "wheel"),
    ("setuptools",),
    ("verify.runs",),
    ("verify.references",),
    ("verify.judgement",),
    ("verify.subjects",),
    ("verify.checks",),
    ("verify",),
    ("bench",),
    ("tune",),
    ("explain",),
    ("aten",),
    ("importing.traces",),
    ("importing.reading",),
    ("importing.steps",),
    ("importing.drafts",),
    ("importing.checks",),
    ("importing",),
    ("capture",),
    ("backend",),
    ("fusegen", "commands"),
    ("cli",),
    ("__main__",),
)
LEVELS = {package: level for level, packages in enumerate(LAYERS) for package in packages}


def modules(root: Path) -> dict[str, str]:
    """The text of each module of the package that lies in `root`."""
    found = {}
    for path in sorted((root / "fusegen").rglob("*.py")):
        if "templates" not in path.relative_to(root).parts:
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def imports(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """What each module imports of the others, anywhere in it: in functions and for type checking, too."""
    found: dict[str, set[str]] = {}
    for name, text in texts.items():
        named = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name} has a relative import"
                each = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {full if full in texts else str(node.module) for full in each}
        found[name] = named & texts.keys()
    return found


def circle(found: Mapping[str, set[str]]) -> list[str]:
    """Modules of which each imports the one before it, and the first the last; none if there is no circle."""
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        return error.args[1]
    return []


# What Python 3.11 and later have, in modules that 3.10 has as well or not.
NEWER = {
    *("enum.StrEnum", "enum.ReprEnum", "enum.verify", "typing.Self", "typing.assert_never", "typing.Never", "tomllib"),
    *("typing.override", "typing.Required", "typing.Unpack", "datetime.UTC", "itertools.batched", "contextlib.chdir"),
    *("asyncio.TaskGroup", "asyncio.timeout", "hashlib.file_digest", "operator.call", "math.cbrt", "math.exp2"),
}


def test_the_oldest_python_reads_and_imports_everything() -> None:
    """pyproject.toml says 3.10, as torch does; generated packages have the support modules."""
    files = [path for name in ("fusegen", "templates") for path in (ROOT / name).rglob("*.py")]
    assert len(files) > 150
    for path in files:
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        nodes = list(ast.walk(tree))
        found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imports_from = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        found |= {str(node.module) for node in imports_from}
        found |= {f"{node.module}.{alias.name}" for node in imports_from for alias in node.names}
        found |= {
            f"{n.value.id}.{n.attr}" for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
        }
        assert not found & NEWER, f"{path}: {sorted(found & NEWER)}"


def package(module: str) -> str:
    """The name in LAYERS of the package that has the module: the longest that begins the module's own name."""
    parts = module.split(".")[1:]
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in names if name in LEVELS), names[-1] if names else module)


def upward(found: Mapping[str, set[str]]) -> list[str]:
    """The imports of packages that are not below the importing one."""
    arrows = [(name, other) for name, others in found.items() for other in sorted(others)]
    between = [(name, other) for name, other in arrows if package(name) != package(other)]
    return [f"{name} -> {other}" for name, other in between if LEVELS[package(other)] >= LEVELS[package(name)]]


FOUND = imports(modules(ROOT))


def test_no_circle_between_modules() -> None:
    assert circle(FOUND) == []


def test_no_package_imports_one_that_is_not_below() -> None:
    assert upward(FOUND) == []


def test_every_package_has_its_place() -> None:
    assert {package(name) for name in FOUND} == LEVELS.keys()


@pytest.mark.parametrize(
    "text",
    [
        "import fusegen.plan.modules.plan",
        "from fusegen.plan.modules import plan",
        "from fusegen.plan.modules.plan import Plan",
        "if TYPE_CHECKING:\n    from fusegen.plan.modules.plan import Plan",
        "def late():\n    from fusegen.plan.modules.plan import Plan",
    ],
)
def test_an_arrow_up_and_its_circle_are_seen(text: str) -> None:
    texts = modules(ROOT)
    found = imports({**texts, "fusegen.ir.graph": f"{texts['fusegen.ir.graph']}\n{text}\n"})
    assert upward(found) == ["fusegen.ir.graph -> fusegen.plan.modules.plan"]
    assert {"fusegen.ir.graph", "fusegen.plan.modules.plan"} <= set(circle(found))


def test_an_arrow_up_between_folders_of_a_package_is_seen() -> None:
    name, texts = "fusegen.plan.programs.units", modules(ROOT)
    found = imports({**texts, name: f"{texts[name]}\nfrom fusegen.plan.load import plan_file\n"})
    assert upward(found) == [f"{name} -> fusegen.plan.load"]
