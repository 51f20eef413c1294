"""What an SLO ConfigMap can amount to, read without the code that is tested.

A text that was drawn without a mistake is in force. What the programs make of a mistake is what is to be compared, so
both outcomes are followed: the text is refused, which leaves the key as it was, or the members of the right type count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api import slo_controller_config as keys
from tests.real.overcommit.generated.mistakes import Mistake
from tests.real.overcommit.node_case import Document

_KEYS: Final = (keys.COLOCATION, keys.RESOURCE_QOS, keys.SYSTEM, keys.RESOURCE_AMPLIFICATION)
"""Those that the differences depend on."""
_GROUPS: Final = {"nodeConfigs": list, "nodeStrategies": list}
_SELECTORS: Final = {"nodeSelector": dict, "matchLabels": dict, "matchExpressions": list}
_MEMBERS: Final[Mapping[str, Any]] = {
    **_GROUPS,
    **_SELECTORS,
    "enable": bool,
    "cpuCalculatePolicy": str,
    "memoryCalculatePolicy": str,
    "degradeTimeMinutes": int,
    "resourceDiffThreshold": (int, float),
    "resourceAmplificationRatio": dict,
}
"""Those that the differences depend on, with their types in JSON."""
_BY_FOLDED_NAME: Final = {name.casefold(): name for name in _MEMBERS}
_COLOCATION_DEFAULTS: Final[Document] = {"enable": False, "degradeTimeMinutes": 15}
_UNSET: Final[Document] = {}


@dataclass(frozen=True, slots=True)
class PossibleStrategy:
    """A colocation strategy that a node may have."""

    fields: Document
    is_on: bool
    """Colocation has to be on for the cluster, and nothing nearer to the node may switch it off."""


class PossibleConfigurations:
    """For each key the documents of which one is in force: a single one unless there was a mistake."""

    def __init__(self, texts: Sequence[Mapping[str, str]]) -> None:
        """``texts``: what the ConfigMap has been, up to now."""
        self._by_key = {name: _possible(name, [each.get(name) for each in texts]) for name in _KEYS}

    def strategies(self, labels: Mapping[str, str], own: str | None) -> Iterator[PossibleStrategy]:
        """``own`` is the annotation of the node; it goes before its group, and that before the cluster."""
        annotated = [_UNSET] if own is None else [each or _UNSET for each in _readings(own)]
        for cluster in self._by_key[keys.COLOCATION]:
            for last in annotated:
                fields = {**_COLOCATION_DEFAULTS, **cluster, **_first_group(cluster, labels), **last}
                yield PossibleStrategy(fields, bool(cluster.get("enable") and fields["enable"]))

    def may_be_in_group(self, name: str, labels: Mapping[str, str]) -> bool:
        return any(next(_groups(each, labels), None) is not None for each in self._by_key[name])

    def amplification_ratios(self, labels: Mapping[str, str]) -> Iterator[Document]:
        member = "resourceAmplificationRatio"
        for each in self._by_key[keys.RESOURCE_AMPLIFICATION]:
            yield {**each.get(member, {}), **_first_group(each, labels).get(member, {})}


def _possible(name: str, texts: Sequence[str | None]) -> list[Document]:
    possible = [_UNSET]
    for text in texts:
        if text is None or (name == keys.COLOCATION and not text):
            possible = [_UNSET]
            continue
        read = _readings(text)
        taken = [each for each in read if each is not None]
        possible = taken + [each for each in possible if None in read and each not in taken]
    return possible


def _readings(text: str) -> list[Document | None]:
    """None: the text is refused."""
    try:
        document = json.loads(text)
    except ValueError:
        return [None]
    if document is None:
        return [_UNSET]
    if not isinstance(document, dict):
        return [None]
    return [_members(document), None] if isinstance(text, Mistake) else [_members(document)]


def _members(document: Document) -> Document:
    """The members that count, under their right names; Go's decoder takes names in any case, and null for unset."""
    named = {_BY_FOLDED_NAME.get(name.casefold(), ""): value for name, value in document.items()}
    read: Document = {name: value for name, value in named.items() if name and _is_usable(name, value)}
    for name in _GROUPS.keys() & read.keys():
        read[name] = [_members(each) for each in read[name] if isinstance(each, dict)]
    if "nodeSelector" in read:
        read["nodeSelector"] = _members(read["nodeSelector"])
    return read


def _is_usable(name: str, value: Any) -> bool:
    return isinstance(value, _MEMBERS[name]) and (name == "enable" or not isinstance(value, bool))


def _first_group(document: Document, labels: Mapping[str, str]) -> Document:
    return next(_groups(document, labels), _UNSET)


def _groups(document: Document, labels: Mapping[str, str]) -> Iterator[Document]:
    for name in _GROUPS:
        for group in document.get(name, ()):
            if "nodeSelector" in group and _selects(group["nodeSelector"], labels):
                yield group


def _selects(selector: Document, labels: Mapping[str, str]) -> bool:
    """A requirement that makes no sense selects nothing."""
    wanted = selector.get("matchLabels", {})
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    return all(_meets(each, labels) for each in selector.get("matchExpressions", ()))


def _meets(requirement: Any, labels: Mapping[str, str]) -> bool:
    match requirement:
        case {"key": str(key), "operator": "In", "values": [*values]}:
            return labels.get(key) in values
        case {"key": str(key), "operator": "NotIn", "values": [*values]}:
            return labels.get(key) not in values
        case {"key": str(key), "operator": "Exists"}:
            return key in labels
        case {"key": str(key), "operator": "DoesNotExist"}:
            return key not in labels
        case _:
            return False
