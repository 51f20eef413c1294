"""Which ConfigMaps are checked, against what, and in which words they are refused: the original's own cases too."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from koordinator.api.codec import DecodeError
from koordinator.api.document import Document, copied
from koordinator.api.meta import ObjectMeta
from koordinator.manager.webhook.admission import AdmissionRequest, Operation
from koordinator.manager.webhook.config_map.validating import ConfigMapValidatingHandler
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError
from tests.manager.webhook.slo_documents import BROKEN, COLOCATION, PLAIN

NAMESPACE, NAME = "koordinator-system", "slo-controller-config"
NODES = (
    ObjectMeta(name="test-node0", labels={"xxx": "xxx"}),
    ObjectMeta(name="test-node1", labels={"yyy": "yyy"}),
)


def group(selector: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"nodeSelector": selector, "enable": True, **more}


def labelled(**labels: str) -> dict[str, Any]:
    return {"matchLabels": labels}


def colocation(*groups: dict[str, Any], **changes: Any) -> dict[str, str]:
    strategy = {**COLOCATION, **changes, **({"nodeConfigs": groups} if groups else {})}
    return {**PLAIN, "colocation-config": json.dumps(strategy)}


def config_map(data: dict[str, str] | None, namespace: str = NAMESPACE, name: str = NAME) -> Document:
    return {"kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data}


def about(new: Document | None, old: Document | None = None, operation: Operation = "CREATE") -> AdmissionRequest:
    return AdmissionRequest(operation, "", "v1", "configmaps", namespace=NAMESPACE, object=new, old_object=old)


def refusal(request: AdmissionRequest, nodes: Iterable[ObjectMeta] = NODES, *, names_required: bool = False) -> str:
    """Why it was refused; empty if it was not."""
    handler = ConfigMapValidatingHandler(NAMESPACE, NAME, lambda: nodes, names_required=names_required)
    try:
        assert handler.handle(request).allowed
    except RefusedConfigurationError as error:
        return str(error)
    return ""


def reason(text: str) -> str:
    return str(json.loads(text.strip("_"))["reason"]) if text else ""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (BROKEN, "ParseConfigFail"),
        (PLAIN, ""),
        (None, ""),
        (colocation(metricAggregateDurationSeconds=-1), "ConfigParamInvalid"),
        (colocation(), ""),
        (
            colocation(group(labelled(xxx="xxx"), name="test1"), group(labelled(xxx="xxx", yyy="yyy"), name="test2")),
            "NodeStrategiesOverlap",
        ),
        (colocation(group(labelled(xxx="xxx"), name="test1"), group(labelled(yyy="yyy"), name="test2")), ""),
    ],
)
def test_a_new_configuration(data: dict[str, str] | None, expected: str) -> None:
    assert reason(refusal(about(config_map(data)))) == expected


def test_a_node_that_two_strategies_select_is_named() -> None:
    data = colocation(group(labelled(xxx="xxx"), name="test1"), group(labelled(yyy="yyy"), name="test2"))
    both = ObjectMeta(name="test-node0", labels={"xxx": "xxx", "yyy": "yyy"})
    assert refusal(about(config_map(data)), (both, *NODES)) == (
        '___{"reason":"ExistNodeConfict","message":'
        '{"config":"colocation-config","strategies":["test1","test2"],"exampleNodes":["test-node0"]}}___'
    )


@pytest.mark.parametrize(
    ("one", "other", "count", "expected"),
    [
        (labelled(**{"1": "1"}), labelled(**{"2": "2"}), 5, ""),
        (labelled(**{"1": "1"}), labelled(**{"2": "2"}), 500, ""),
        (labelled(**{"30": "30"}), labelled(name="30"), 500, "ExistNodeConfict"),
        (
            {"matchExpressions": [{"key": "name", "operator": "In", "values": ["50", "51"]}]},
            labelled(name="50"),
            500,
            "NodeStrategiesOverlap",
        ),
    ],
)
def test_many_nodes(one: dict[str, Any], other: dict[str, Any], count: int, expected: str) -> None:
    nodes = [
        ObjectMeta(name=str(number), labels={str(number): str(number), "name": str(number)}) for number in range(count)
    ]
    data = colocation(group(one, name="strategy1"), group(other, name="strategy2"))
    assert reason(refusal(about(config_map(data)), nodes)) == expected


def test_nodes_are_listed_only_where_two_strategies_could_select_one() -> None:
    def unexpected() -> Iterable[ObjectMeta]:
        raise AssertionError("nothing to compare")

    handler = ConfigMapValidatingHandler(NAMESPACE, NAME, unexpected)
    assert handler.handle(about(config_map(colocation(group(labelled(xxx="xxx")))))).allowed


def test_what_did_not_change_is_not_checked() -> None:
    broken = config_map(BROKEN)
    assert refusal(about({**copied(broken), "immutable": False}, broken, "UPDATE")) == ""


def test_what_changed_is_compared_with_what_the_question_says_was_there() -> None:
    changed = config_map({**BROKEN, "colocation-config": "invalid_content"})
    assert reason(refusal(about(changed, config_map(BROKEN), "UPDATE"))) == "ParseConfigFail"
    assert '"Failed to parse colocation config in configmap koordinator-system/slo-controller-config' in refusal(
        about(changed, config_map(BROKEN), "UPDATE")
    )


@pytest.mark.parametrize(("required", "expected"), [(False, ""), (True, "ConfigParamInvalid")])
def test_names_where_they_are_required(required: bool, expected: str) -> None:
    unnamed = config_map(colocation(group(labelled(xxx="xxx"))))
    assert reason(refusal(about(unnamed), names_required=required)) == expected


def test_deletion_passes() -> None:
    assert refusal(about(None, config_map(BROKEN), "DELETE")) == ""


@pytest.mark.parametrize(
    "request_",
    [
        about(config_map(BROKEN, namespace="default")),
        about(config_map(BROKEN, name="other")),
        AdmissionRequest("CREATE", "", "v1", "pods", object=config_map(BROKEN)),
        AdmissionRequest("CREATE", "", "v1", "configmaps", "status", object=config_map(BROKEN)),
        AdmissionRequest("CREATE", "", "v1", "comfigmaps", object={"metadata": {"name": "configmap1"}}),
    ],
)
def test_others_pass(request_: AdmissionRequest) -> None:
    assert refusal(request_) == ""


def test_the_namespace_may_stand_in_the_question_alone() -> None:
    nameless = config_map(BROKEN)
    del nameless["metadata"]["namespace"]
    assert reason(refusal(about(nameless))) == "ParseConfigFail"


@pytest.mark.parametrize("request_", [about(None), about({}), about(config_map({}), None, "UPDATE")])
def test_a_question_without_a_config_map_cannot_be_answered(request_: AdmissionRequest) -> None:
    with pytest.raises(DecodeError, match="there is no content to decode"):
        refusal(request_)


def test_the_config_map_that_was_queried_about_stays_as_it_was() -> None:
    requested = config_map(colocation(group(labelled(xxx="xxx"))))
    before = copied(requested)
    refusal(about(requested))
    assert requested == before


UNKNOWN = {"colocation-config": '{"enabled": true}', "cpu-burst-confg": "{}"}
FOUND = (
    "data[colocation-config].enabled: no such field; did you mean enable?",
    "data[cpu-burst-confg]: no program reads it; did you mean cpu-burst-config?",
)


def test_what_no_program_knows_is_a_warning() -> None:
    handler = ConfigMapValidatingHandler(NAMESPACE, NAME, lambda: NODES)
    assert tuple(handler.handle(about(config_map(UNKNOWN))).warnings) == FOUND


def test_a_warning_is_not_repeated_at_each_update() -> None:
    handler = ConfigMapValidatingHandler(NAMESPACE, NAME, lambda: NODES)
    changed = config_map({**UNKNOWN, "system-config": "{}"})
    assert handler.handle(about(changed, config_map(UNKNOWN), "UPDATE")).warnings == ()


def test_what_no_program_knows_is_refused_where_that_is_wanted() -> None:
    handler = ConfigMapValidatingHandler(NAMESPACE, NAME, lambda: NODES, is_strict=True)
    with pytest.raises(RefusedConfigurationError) as caught:
        handler.handle(about(config_map(UNKNOWN)))
    document = json.loads(str(caught.value).strip("_"))
    assert document["reason"] == "ConfigParamInvalid"
    assert tuple(f"{path}: {message}" for path, message in document["message"].items()) == FOUND
