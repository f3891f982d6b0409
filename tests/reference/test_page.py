"""docs/spec.md is what the models and the catalogue give. After a change of either: FUSEGEN_ACCEPT=1 pytest, here."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fusegen.ops.catalogue import STEPS
from fusegen.plan.load import plan_document
from fusegen.reference.page import filled
from fusegen.spec.annotations import fields
from fusegen.spec.arguments import ARGUMENTS
from fusegen.spec.model import SpecModel
from fusegen.spec.yaml import parse_yaml

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spec.md"


def test_the_page_is_what_the_models_give() -> None:
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("FUSEGEN_ACCEPT"):
        PAGE.write_text(filled(text), encoding="utf-8", newline="\n")
        text = PAGE.read_text(encoding="utf-8")
    assert text == filled(text)
    assert text.count("<!-- derived: ") == 7


def test_its_example_can_be_planned() -> None:
    example = re.search(r"(?s)```yaml\n(fusegen: 1.*?)```", PAGE.read_text(encoding="utf-8"))
    assert example and plan_document(parse_yaml(example[1], "spec.yaml")).spec.name == "matmul_bn_bias_div_swish"


def test_every_key_is_explained_and_has_an_example() -> None:
    for model in (SpecModel, *ARGUMENTS, *STEPS):
        for name, field in fields(model).items():
            if name not in ("op", "type"):
                assert field.description and field.examples, (model.__name__, name)
