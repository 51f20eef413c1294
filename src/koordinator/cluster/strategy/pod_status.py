"""What the status of a pod must say, whoever writes it."""

from __future__ import annotations

from koordinator.api.document import Document
from koordinator.api.names import dns_subdomain, label_key
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid
from koordinator.cluster.strategy.network_rules import ip, read_address
from koordinator.cluster.strategy.rules import IMMUTABLE


def check_status(status: Document, old: Document) -> list[Cause]:
    """Little: not even the phase is looked at."""
    before = old.get("status") or {}
    causes: list[Cause] = []
    name = status.get("nominatedNodeName")
    if name and name != before.get("nominatedNodeName"):
        causes += [invalid("status.nominatedNodeName", name, detail) for detail in dns_subdomain(name)]
        if old["spec"].get("nodeName"):
            detail = "may not be set on pods that are already bound to a node"
            causes.append(forbidden("status.nominatedNodeName", detail))
    before_class = before.get("qosClass") or ""
    if (status.get("qosClass") or "") != before_class:
        causes.append(invalid("status.qosClass", status.get("qosClass") or "", IMMUTABLE))
    causes += _check_addresses(status.get("podIPs") or [], before.get("podIPs") or [], "status.podIPs")
    addresses = status.get("hostIPs") or []
    if addresses and (addresses[0].get("ip") or "") != (status.get("hostIP") or ""):
        causes.append(invalid("status.hostIPs[0].ip", addresses[0].get("ip") or "", "must be equal to `hostIP`"))
    causes += _check_addresses(addresses, before.get("hostIPs") or [], "status.hostIPs")
    for index, condition in enumerate(status.get("conditions") or ()):
        kind = condition.get("type") or ""
        causes += [invalid(f"status.conditions[{index}].Type", kind, detail) for detail in label_key(kind)]
    return causes


def _check_addresses(addresses: list[Document], before: list[Document], field: str) -> list[Cause]:
    """One for each family at most. What was there stays, whatever it is."""
    known = [each.get("ip") for each in before]
    causes = [
        cause
        for index, each in enumerate(addresses)
        if each.get("ip") not in known
        for cause in ip(each.get("ip"), f"{field}[{index}]")
    ]
    found = [read_address(each.get("ip") or "") for each in addresses]
    if None not in found and len({address.version for address in found if address is not None}) < len(found):
        causes.append(invalid(field, addresses, "may specify no more than one IP for each IP family"))
    return causes
