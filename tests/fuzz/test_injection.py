"""Strings of a stranger, in every place of a spec where a string can stand: none reaches the code of a package."""

from __future__ import annotations

import ast
import copy
import functools
import io
import re
import tokenize
from typing import Any

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_document
from fusegen.render.package import Files, render_package
from fusegen.spec.yaml import parse_yaml
from tests.fuzz.claims import check_error
from tests.fuzz.mutations import Path, as_text, at, paths

HOSTILE = {
    "C++ statement": '"; system("x"); //',
    "end of a comment": "*/ int x; /*",
    "end of a line comment": "x\nint injected;",
    "carriage return": "x\rint injected;",
    "expression of the templates": "{{ 7*7 }}",
    "block of the templates": "{% raw %}",
    "comment of the templates": "{# x #}",
    "end of a docstring": '"""\nimport os\n"""',
    "other quotes": "''' + __import__('os').name + '''",
    "backslash at the end": "x \\",
    "backslash and line break": "x \\\ny",
    "escape": "\\x22); //",
    "trigraph": "what??/",
    "nothing": "",
    "NUL": "x\0y",
    "terminal": "\x1b[31mred",
    "line separator": "x\u2028y",
    "next line": "x\x85y",
    "right to left": "\u202ex",
    "zero width": "\ufeffx\u200b",
    "half a character": "\ud800",
    "emoji": "\U0001f600",
    "looks like x": "\u0445",
    "full width": "\uff58",
    "ligature": "\ufb01x",
    "preprocessor": "#include </etc/passwd>",
    "format": "%s{0}$(x)`x`",
    "path": "../../x",
    "absolute path": "/x",
    "attribute": "__class__",
    "call": "x()",
    "two names": "x, y",
    "default": "x=1",
    "merge key": "<<",
    "long": "x" * 20_000,
}
# One for each thing that a text could end or begin: code, comments, templates, strings, and what no name is.
IN_EVERY_PLACE = ("C++ statement", "end of a comment", "expression of the templates", "NUL", "two names", "nothing")
BENIGN = "A chain of the tests"
SPEC: dict[str, Any] = {
    "fusegen": 1,
    "name": "demo",
    "class": "Demo",
    "about": BENIGN,
    "dims": {"batch": 16, "width": 32, "hidden": 64},
    "arguments": {
        "width": {"type": "dim"},
        "hidden": {"type": "dim"},
        "like": {"type": "shape", "is": ["hidden"]},
        "count": {"type": "int", "typical": 4, "default": 4},
        "slope": {"type": "float", "default": 0.5},
        "start": {"type": "float", "default": 1},
    },
    "inputs": {"x": ["batch", "width"], "z": ["batch", "hidden"]},
    "dtypes": ["float32", "bfloat16"],
    "targets": ["sm_80", "sm_90a"],
    "chain": [
        {"op": "linear", "name": "gemm", "out_features": "hidden", "save": "a"},
        {"op": "batch_norm", "name": "bn", "eps": "start", "momentum": "slope"},
        {"op": "group_norm", "name": "gn", "num_groups": "count"},
        {"op": "add", "parameter": "scale", "shape": "like", "init": "randn"},
        {"op": "mul", "parameter": "shift", "shape": ["hidden"], "init": "start"},
        {"op": "mul", "constant": 2.5, "name": "held"},
        {"op": "gelu", "approximate": "tanh"},
        {"op": "leaky_relu", "negative_slope": "slope"},
        {"op": "add", "value": "a", "detach": True},
        {"op": "sub", "input": "z", "swap": True},
    ],
}


def places() -> list[tuple[Path, bool]]:
    """Every string of the spec: its path, and whether it is the key of that path."""
    found = [(path, False) for path in paths(SPEC) if isinstance(at(SPEC, path), str)]
    return found + [(path, True) for path in paths(SPEC) if isinstance(path[-1], str)]


def with_string(path: Path, is_key: bool, text: str) -> str:
    """The spec's text with another string in one place."""
    data = copy.deepcopy(SPEC)
    inside = at(data, path[:-1])
    if is_key:
        items = [(text if name == path[-1] else name, value) for name, value in inside.items()]
        inside.clear()
        inside.update(items)
    else:
        inside[path[-1]] = text
    return as_text(data)


@functools.cache
def rendered(text: str) -> Files:
    return render_package(planned_document(parse_yaml(text, "spec.yaml", lenient=True)))


def without_comments(path: str, text: str) -> str:
    """What a compiler or Python sees of a file."""
    if path.endswith(".py"):
        tokens = [
            each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type != tokenize.COMMENT
        ]
        tree = ast.parse(tokenize.untokenize(tokens))
        assert isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant), "the docstring"
        return ast.dump(ast.Module(tree.body[1:], []))
    if path.endswith(".json"):
        return text
    pieces = re.findall(r'"(?:\\.|[^"\\\n])*"|//(?:\\\n|[^\n])*|/\*.*?\*/|.|\n', text, re.DOTALL)
    return "".join(" " if piece.startswith(("//", "/*")) else piece for piece in pieces)


def test_the_spec_itself_is_accepted() -> None:
    assert {path for path, is_key in places() if not is_key} >= {("name",), ("about",), ("chain", 0, "op")}
    assert len(places()) > 100 and rendered(as_text(SPEC))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in IN_EVERY_PLACE else pytest.mark.slow) for kind in HOSTILE]
)
def test_every_place_but_about_refuses_it(kind: str) -> None:
    for path, is_key in places():
        if path == ("about",) and not is_key:
            continue
        text = with_string(path, is_key, HOSTILE[kind])
        with pytest.raises(SpecError) as caught:
            rendered(text)
        check_error(caught.value, "spec.yaml", text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_name_refuses_it(kind: str) -> None:
    """Of a layer, of the module's class and in an expression."""
    for path in (("chain", 0, "name"), ("class",), ("inputs", "x", 0)):
        text = with_string(path, False, HOSTILE[kind])
        with pytest.raises(SpecError) as caught:
            rendered(text)
        check_error(caught.value, "spec.yaml", text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_about_stays_in_comments(kind: str) -> None:
    """The one string that is free text: refused, or shown where nothing can come of it."""
    text = with_string(("about",), False, HOSTILE[kind])
    try:
        files = rendered(text)
    except SpecError as error:
        check_error(error, "spec.yaml", text)
        return
    for path, benign in rendered(as_text(SPEC)).items():
        assert without_comments(path, files[path]) == without_comments(path, benign), path


@pytest.mark.parametrize(
    "about", ["{{ 7*7 }}", "{% raw %}", "'''", "# //", "/ / x", "\U0001f600 \u6f22", "word " * 39, "???"]
)
def test_texts_that_about_may_have(about: str) -> None:
    files = rendered(with_string(("about",), False, about))
    assert about.strip()[:20] in files["demo/kernels.cu"] and about.strip()[:20] in files["demo/__init__.py"]


@pytest.mark.parametrize("name", ["system", "printf", "exec", "open", "os", "subprocess"])
def test_names_of_functions_are_only_names(name: str) -> None:
    """Such a name is no danger: it is declared where it stands."""
    for path in (("chain", 3, "parameter"), ("chain", 0, "name"), ("chain", 5, "name")):
        files = rendered(with_string(path, False, name))
        calls = {each.func.id for each in ast.walk(ast.parse(files["demo/__init__.py"]))
                 if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}  # fmt: skip
        assert name not in calls
