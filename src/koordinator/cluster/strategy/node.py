"""Nodes: capacity, taints, and the columns of ``kubectl get nodes``."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import label_key, label_value
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.network_rules import cidr, read_block
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, defaults_of
from koordinator.cluster.strategy.pod import round_up_resources
from koordinator.cluster.strategy.pod_validation import check_amount
from koordinator.cluster.strategy.table import AGE, NAME, Table, computed, lookup, table

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@defaults_of("io.k8s.api.core.v1.NodeStatus")
def _node_status(status: Document) -> None:
    for name in ("capacity", "allocatable"):
        round_up_resources(status.get(name))
    if status.get("allocatable") is None and status.get("capacity"):
        status["allocatable"] = dict(status["capacity"])


class NodeStrategy(ObjectStrategy):
    """Nodes may be created with a status, unlike most kinds: that is how simulated ones join in one request."""

    def __init__(self) -> None:
        labels = {"spec.unschedulable": lambda obj: "true" if obj["spec"].get("unschedulable") else "false"}
        super().__init__("v1", "Node", namespaced=False, table=node_table(), field_labels=labels)

    def initialize(self, obj: Document, context: RequestContext) -> None:
        _pair_pod_cidrs(obj["spec"])

    def carry_over(self, obj: Document, old: Document, context: RequestContext) -> None:
        obj["status"] = old.get("status") or {}
        _pair_pod_cidrs(obj["spec"])

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        causes = check_taints(obj["spec"].get("taints") or [], "metadata.taints")
        status = obj.get("status") or {}
        for group in ("capacity", "allocatable"):
            for name, text in (status.get(group) or {}).items():
                causes += [invalid(f"status.{group}.{name}", name, detail) for detail in label_key(name)]
                causes += check_amount(name, text, f"status.{group}.{name}")
        causes += _check_pod_cidrs(obj["spec"].get("podCIDRs") or [], "spec.podCIDRs")
        if old is None:
            return causes
        before, now = old["spec"], obj["spec"]
        if before.get("podCIDRs") and now.get("podCIDRs") != before["podCIDRs"]:
            detail = 'node updates may not change podCIDR except from "" to valid'
            causes.append(forbidden("spec.podCIDRs", detail))
        if before.get("providerID") and now.get("providerID") != before["providerID"]:
            detail = 'node updates may not change providerID except from "" to valid'
            causes.append(forbidden("spec.providerID", detail))
        return causes


def _pair_pod_cidrs(spec: Document) -> None:
    """``podCIDR`` is the first of ``podCIDRs``; whichever was given fills in the other."""
    blocks = spec.get("podCIDRs") or []
    if spec.get("podCIDR") and blocks[:1] != [spec["podCIDR"]]:
        spec["podCIDRs"] = [spec["podCIDR"]]
    elif blocks:
        spec["podCIDR"] = blocks[0]


def _check_pod_cidrs(blocks: list[str], field: str) -> list[Cause]:
    causes = [cause for index, block in enumerate(blocks) for cause in cidr(block, f"{field}[{index}]")]
    versions = [network.version for block in blocks if (network := read_block(block)) is not None]
    if len(blocks) > 1 and sorted(versions) != [4, 6]:
        causes.append(invalid(field, blocks, "may specify no more than one CIDR for each IP family"))
    return causes


def check_taints(taints: list[Document], field: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = f"{field}[{index}]"
        key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
        causes += [invalid(f"{at}.key", key, detail) for detail in label_key(key)]
        causes += [invalid(f"{at}.value", value, detail) for detail in label_value(value)]
        if not effect:
            causes.append(required(f"{at}.effect"))
        elif effect not in _EFFECTS:
            causes.append(not_supported(f"{at}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            cause = duplicate(at, shown)
            detail = f"{cause.message}: taints must be unique by key and effect pair"
            causes.append(Cause(cause.reason, f"{at}", detail))
        seen.add((key, effect))
    return causes


def node_table() -> Table:
    return table(
        NAME,
        computed("Status", _status),
        computed("Roles", _roles),
        AGE,
        computed("Version", lambda obj: _info(obj, "kubeletVersion", "")),
        computed("Internal-IP", lambda obj: _address(obj, "InternalIP"), wide=True),
        computed("External-IP", lambda obj: _address(obj, "ExternalIP"), wide=True),
        computed("OS-Image", lambda obj: _info(obj, "osImage"), wide=True),
        computed("Kernel-Version", lambda obj: _info(obj, "kernelVersion"), wide=True),
        computed("Container-Runtime", lambda obj: _info(obj, "containerRuntimeVersion"), wide=True),
    )


def _status(node: Document) -> str:
    conditions = lookup(node, ("status", "conditions")) or []
    ready = next((condition for condition in conditions if condition.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(node: Document) -> str:
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX:
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == _ROLE_LABEL and value:
            roles.add(value)
    return ",".join(sorted(roles)) or "<none>"


def _info(node: Document, name: str, absent: str = "<unknown>") -> str:
    return lookup(node, ("status", "nodeInfo", name)) or absent


def _address(node: Document, kind: str) -> str:
    addresses = lookup(node, ("status", "addresses")) or []
    return next((a["address"] for a in addresses if a.get("type") == kind), "<none>")
