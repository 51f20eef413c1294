"""What a quota may not say about itself: the cases of the original's own tests, and what it reads from annotations."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.manager.webhook.elastic_quota.changes import check_itself
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused
from tests.model.quota_tree.quota_objects import P, amounts, wire_quota

STRICT = {"max-strict-check-resource-keys": '["cpu","memory"]'}


def refusal(**given: Any) -> str:
    try:
        check_itself(wire_quota("temp", **given))
    except QuotaRefused as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"max": amounts(120, 1048576)}, ""),
        ({"max": amounts(-1, 1048576)}, "temp quota.Spec.Max's value < 0, in dimensions :[cpu]"),
        (
            {"min": amounts(-1, -1), "max": amounts(1, 1048576)},
            "temp quota.Spec.Min's value < 0, in dimensions :[cpu memory]",
        ),
        (
            {"min": amounts(1, 1048576), "max": amounts(10)},
            "resourceKey memory of quota temp is included in min, which is not included in max",
        ),
        ({"min": amounts(12), "max": amounts(10)}, "resourceKey cpu of quota temp min 12 > max 10"),
        ({"min": {"cpu": "1500m"}, "max": {"cpu": "1"}}, "resourceKey cpu of quota temp min 1500m > max 1"),
        (
            {"annotations": {"shared-weight": amounts(-1, 1048576)}, "max": amounts(0, 1048576)},
            f"temp quota.Annotation[{P}/shared-weight]'s value < 0, in dimension :[cpu]",
        ),
        ({"annotations": {"shared-weight": "null"}}, ""),
        (
            {"annotations": STRICT, "max": amounts(0, 1048576), "used": amounts(0, 10485760)},
            "resourceKey memory of quota temp max 1048576 < used 10485760",
        ),
        (
            {
                "annotations": {"max-strict-check-resource-keys": '["cpu"]'},
                "max": amounts(0, 1048576),
                "used": amounts(0, 10485760),
            },
            "",
        ),
        ({"annotations": STRICT, "max": amounts(0, 1048576), "used": amounts(0)}, ""),
        (
            {"annotations": STRICT, "max": amounts(0), "used": amounts(0, 10485760)},
            "resourceKey memory of quota temp is included in used, "
            "which is not included in max but should check max >= used",
        ),
    ],
)
def test_the_cases_of_the_original(given: dict[str, Any], wanted: str) -> None:
    assert refusal(**given) == wanted


@pytest.mark.parametrize("annotation", ["shared-weight", "max-strict-check-resource-keys"])
def test_an_annotation_that_cannot_be_read_is_named(annotation: str) -> None:
    assert refusal(annotations={annotation: "{"}).startswith(
        f"temp quota.Annotation[{P}/{annotation}]'s value is invalid: "
    )
