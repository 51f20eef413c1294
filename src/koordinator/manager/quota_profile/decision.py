"""What the quota of a profile has to look like, and the smallest writes that bring it there.

The quota guarantees what the profile's nodes have, times a ratio, and its maximum is without limit in practice: it is
the root of a tree, whose other quotas share it out. How much of it is on nodes that take no pods is noted beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.api.node import Node
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.model.label_selector import compile_selector

Document = dict[str, Any]
_NO_LIMIT: Final = Quantity.from_value((2**63 - 1) // 2000)
_DEFAULT_KEYS: Final = ("cpu", "memory")
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write; None is nothing. Patches are JSON merge patches."""

    profile_patch: Document | None = None
    create_quota: Document | None = None
    quota_patch: Document | None = None
    remarks: tuple[str, ...] = ()
    """What of the profile is not usable and is left out: field, value and what is allowed."""


def decide(profile: ElasticQuotaProfile, quota: ElasticQuota | None, nodes: Iterable[Node]) -> Plan:
    """``quota`` is the profile's as stored. Raises SelectorError for a node selector that cannot be used."""
    metadata, spec = profile.metadata, profile.spec
    remarks: list[str] = []
    own_tree = metadata.labels.get(labels.QUOTA_TREE_ID, "")
    tree = own_tree or tree_id(metadata.namespace, metadata.name)
    selector = compile_selector(spec.node_selector)
    members = [node for node in nodes if selector.matches(node.metadata.labels)]
    ratio = _ratio(spec.resource_ratio, remarks)
    total = _scaled(_sum(members), ratio)
    unschedulable = _scaled(_sum(node for node in members if not _takes_pods(node)), ratio)
    keys = _resource_keys(metadata.annotations.get(annotation_keys.QUOTA_RESOURCE_KEYS), remarks)
    wanted_labels = {
        labels.QUOTA_PROFILE: metadata.name,
        **spec.quota_labels,
        labels.QUOTA_TREE_ID: tree,
        labels.QUOTA_IS_ROOT: "true",
    }
    wanted_annotations = {
        annotation_keys.QUOTA_TOTAL_RESOURCE: _as_json(total),
        annotation_keys.QUOTA_UNSCHEDULABLE_RESOURCE: _as_json(unschedulable),
    }
    minimum = {key: total.get(key, Quantity.from_value(0)) for key in keys}
    maximum = dict.fromkeys(keys, _NO_LIMIT)
    profile_patch = None if own_tree else {"metadata": {"labels": {labels.QUOTA_TREE_ID: tree}}}
    if quota is None:
        created = _created(profile, wanted_labels, wanted_annotations, minimum, maximum)
        return Plan(profile_patch, create_quota=created, remarks=tuple(remarks))
    changes: Document = {}
    known = quota.metadata
    metadata_changes = {
        name: changed
        for name, changed in (
            ("labels", _changed_texts(known.labels, wanted_labels)),
            ("annotations", _changed_texts(known.annotations, wanted_annotations)),
        )
        if changed
    }
    spec_changes = {
        name: changed
        for name, changed in (
            ("min", _changed_amounts(quota.spec.min, minimum)),
            ("max", _changed_amounts(quota.spec.max, maximum)),
        )
        if changed
    }
    if metadata_changes:
        changes["metadata"] = metadata_changes
    if spec_changes:
        changes["spec"] = spec_changes
    return Plan(profile_patch, quota_patch=changes or None, remarks=tuple(remarks))


def tree_id(namespace: str, name: str) -> str:
    """The tree of a profile that names none: FNV-1a, 64 bits, of its key, in decimal."""
    value = _FNV_OFFSET
    for byte in f"{namespace}/{name}".encode():
        value = (value ^ byte) * _FNV_PRIME % 2**64
    return str(value)


def _takes_pods(node: Node) -> bool:
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    return ready and not node.spec.unschedulable


def _sum(nodes: Iterable[Node]) -> ResourceList:
    """Of everything that is allocatable. A sum prints like its first part that is not zero."""
    total: dict[str, Quantity] = {}
    for node in nodes:
        for name, amount in node.status.allocatable.items():
            known = total.get(name)
            if known is None:
                total[name] = amount
            else:
                total[name] = Quantity(known.nanos + amount.nanos, known.format if known else amount.format)
    return total


def _scaled(total: ResourceList, ratio: float | None) -> ResourceList:
    """CPU in thousandths, everything else in whole units, cut off; without a ratio everything as it is."""
    if ratio is None:
        return total
    return {name: _times(name, amount, ratio) for name, amount in total.items()}


def _times(name: str, amount: Quantity, ratio: float) -> Quantity:
    if name == "cpu":
        return Quantity.from_milli(int(amount.milli * ratio))
    return Quantity.from_value(int(amount.value * ratio), Format.BINARY_SI if name == "memory" else Format.DECIMAL_SI)


def _ratio(text: str | None, remarks: list[str]) -> float | None:
    if text is None:
        return None
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if 0 < ratio <= 1:
        return ratio
    remarks.append(
        f"spec.resourceRatio: {text!r} is not usable, all is counted: a number above 0 and up to 1 is allowed"
    )
    return 1.0


def _resource_keys(text: str | None, remarks: list[str]) -> tuple[str, ...]:
    if text is None:
        return _DEFAULT_KEYS
    try:
        keys = json.loads(text)
    except ValueError:
        keys = None
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return tuple(dict.fromkeys(keys))
    remarks.append(
        f"metadata.annotations[{annotation_keys.QUOTA_RESOURCE_KEYS}]: {text!r} is not usable, "
        'cpu and memory are taken: a JSON list of resource names such as ["cpu","memory"] is allowed'
    )
    return _DEFAULT_KEYS


def _as_json(amounts: ResourceList) -> str:
    """As Go writes it: sorted, without spaces."""
    return json.dumps(_texts(amounts), sort_keys=True, separators=(",", ":"))


def _texts(amounts: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _created(
    profile: ElasticQuotaProfile,
    wanted_labels: Mapping[str, str],
    wanted_annotations: Mapping[str, str],
    minimum: ResourceList,
    maximum: ResourceList,
) -> Document:
    return {
        "apiVersion": ELASTIC_QUOTAS.api_version,
        "kind": ELASTIC_QUOTAS.name,
        "metadata": {
            "name": profile.spec.quota_name,
            "namespace": profile.metadata.namespace,
            "labels": dict(wanted_labels),
            "annotations": dict(wanted_annotations),
        },
        "spec": {"min": _texts(minimum), "max": _texts(maximum)},
    }


def _changed_texts(known: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if known.get(key) != value}


def _changed_amounts(known: ResourceList, wanted: ResourceList) -> dict[str, str | None]:
    """Amounts that are not wanted any more are removed."""
    changed: dict[str, str | None] = {key: str(value) for key, value in wanted.items() if known.get(key) != value}
    return changed | dict.fromkeys(known.keys() - wanted.keys())
