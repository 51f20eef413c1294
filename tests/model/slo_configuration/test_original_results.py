"""What the Go original makes of the same ConfigMaps, and where we differ from it on purpose.

``original_results.json`` was written by the original's own code (v1.8: the ConfigMap handlers of its NodeSLO and
colocation controllers, the checkers of its webhook), of the parts of a result those that differ from the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.codec import to_document
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.model.slo_configuration.admission_check import check_config_map, check_nodes
from koordinator.model.slo_configuration.colocation import node_colocation_strategy
from koordinator.model.slo_configuration.configuration import SLOConfiguration
from koordinator.model.slo_configuration.node_slo import node_slo_spec
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError

_GOLDEN: Final = json.loads((Path(__file__).parent / "original_results.json").read_text())
_CASES: Final[dict[str, dict[str, Any]]] = {case["name"]: case for case in _GOLDEN["cases"]}

_REPORTED: Final = "a value that cannot be used is told by an event"
_NOT_STORABLE: Final = "a value that no API server stores in a NodeSLO keeps the old one in force"
_MERGED: Final = "pairs are compared as they are in force, with what is inherited or built in"
_BY_KIND: Final = "percentages are summed with percentages, amounts with amounts"

_DIFFERENCES: Final[Mapping[tuple[str, str], str]] = {
    ("system of a group without a bandwidth", "nodeSLO"): "a bandwidth that is not given is inherited",
    ("bandwidth of the node that is no quantity", "nodeSLO"): "it is ignored, and does not remove the system strategy",
    ("colocation by labels, rounded", "colocation"): "ratios are rounded, not cut",
    ("colocation by an annotation that cannot be used", "colocation"): "it is ignored",
    ("blocks of a group", "nodeSLO"): "lists are replaced whole, not merged by position",
    ("selector unparsable", "events"): _REPORTED,
    ("selector with a key that is no label", "events"): _REPORTED,
    ("colocation that cannot be used", "events"): _REPORTED,
    ("colocation of a group that cannot be used", "events"): _REPORTED,
    ("colocation, empty text of a policy", "events"): _REPORTED,
    ("colocation, empty text of a policy", "webhook"): "the webhook refuses what will not be acted upon",
    ("bounds 0", "events"): _REPORTED,
    ("bounds 1", "events"): _REPORTED,
    ("bounds 2", "events"): _REPORTED,
    ("bounds 3", "events"): _REPORTED,
    ("bounds 4", "events"): _REPORTED,
    ("bounds 5", "nodeSLO"): _NOT_STORABLE,
    ("bounds 5", "events"): _REPORTED,
    ("bounds 12", "nodeSLO"): _NOT_STORABLE,
    ("bounds 12", "events"): _REPORTED,
    ("bounds 13", "nodeSLO"): _NOT_STORABLE,
    ("bounds 13", "events"): _REPORTED,
    ("bounds 15", "nodeSLO"): _NOT_STORABLE,
    ("bounds 15", "events"): _REPORTED,
    ("bounds 17", "events"): _REPORTED,
    ("bounds 18", "nodeSLO"): _NOT_STORABLE,
    ("bounds 18", "events"): _REPORTED,
    ("parse failures are told for the first key", "nodeSLO"): _NOT_STORABLE,
    ("parse failures are told for the first key", "events"): _REPORTED,
    ("bounds 9", "webhook"): _MERGED,
    ("bounds 10", "webhook"): _MERGED,
    ("bounds 14", "webhook"): _MERGED,
    ("bounds 16", "webhook"): _MERGED,
    ("network, quantities", "webhook"): _BY_KIND,
    ("network, quantities over the total", "webhook"): _BY_KIND,
    ("network, quantities of a group over the total", "webhook"): _BY_KIND,
    ("network, percentages and a total", "webhook"): _BY_KIND,
    ("network, percentages of a group without a total", "webhook"): _BY_KIND,
    ("resource QoS without the system key", "webhook"): "a system key that is not there is an empty one",
    ("overlap, two not in", "webhook"): "two groups that only exclude both select a node without labels",
    ("overlap, two exist", "webhook"): "a label that must exist, with whatever value, is asked for like any other",
}


def _ours(case: Mapping[str, Any]) -> dict[str, Any]:
    configuration, problems = SLOConfiguration().updated(case["data"])
    node = Node(
        metadata=ObjectMeta(name="node-1", labels=case.get("labels", {}), annotations=case.get("annotations", {}))
    )
    strategy, _ = node_colocation_strategy(configuration.colocation.strategies, node.metadata)
    return {
        "nodeSLO": _changes("nodeSLO", to_document(node_slo_spec(configuration, node)[0])),
        "colocation": _changes("colocation", to_document(strategy)),
        "webhook": _refusal(case, node.metadata),
        "in_error": configuration.colocation.in_error,
        "events": sorted(_start(f"{problem.reason} {problem.message}") for problem in problems),
    }


def _changes(part: str, document: Mapping[str, Any]) -> dict[str, Any]:
    defaults = _GOLDEN["defaults"][part]
    names = sorted(defaults.keys() | document.keys())
    return {name: document.get(name) for name in names if defaults.get(name) != document.get(name)}


def _refusal(case: Mapping[str, Any], node: ObjectMeta) -> str:
    try:
        selections = check_config_map(
            case["data"],
            None,
            config_map="koordinator-system/slo-controller-config",
            names_required=case.get("names_required", False),
        )
        check_nodes(selections, [node])
    except RefusedConfigurationError as error:
        return str(error)
    return ""


def _start(text: str) -> str:
    """Without the words of the JSON or selector library."""
    for end in (", err:", "failed to parse node selector"):
        text = text.split(end)[0]
    return text


@pytest.mark.parametrize("part", ["nodeSLO", "colocation", "webhook", "in_error", "events"])
@pytest.mark.parametrize("name", list(_CASES))
def test_a_result_is_the_original_s_unless_it_is_meant_to_differ(name: str, part: str) -> None:
    ours, original = _ours(_CASES[name])[part], _CASES[name][part]
    if part == "webhook":
        ours, original = _start(ours), _start(original)
    assert (ours == original) is ((name, part) not in _DIFFERENCES)
