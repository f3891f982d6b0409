"""Digests of what packages are rendered from, for the manifest: a check tells a changed spec from a changed fusegen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.summary import tuning_data


def spec_digests(plans: Iterable[ModulePlan]) -> dict[str, str]:
    """By the names of packages, the digest of the spec, as it is written, and of its tunings.

    Comments, the order of keys and defaults that the spec leaves out do not count: neither a remark in a spec nor
    another version of fusegen with a key more is another digest.
    """
    return {name: digest for plan in plans for digest in [_digest(plan)] for name in plan.package_names}


def _digest(planned: ModulePlan) -> str:
    spec = planned.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    tunings = {plan.spec.name: tuning_data(plan) for plan in planned.plans if plan.tuning}
    return hashlib.sha256(json.dumps([spec, tunings], sort_keys=True).encode()).hexdigest()[:12]
