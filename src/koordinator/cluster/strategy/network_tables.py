"""The ``kubectl get`` columns of endpoints and ingresses, which show the first few of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.strategy.table import AGE, NAME, computed, lookup, table, text

_NONE: Final = "<none>"
_UNSET: Final = "<unset>"
_SHOWN: Final = 3


def _first_few(texts: Sequence[str], absent: str) -> str:
    if not texts:
        return absent
    shown = ",".join(texts[:_SHOWN])
    return f"{shown} + {len(texts) - _SHOWN} more..." if len(texts) > _SHOWN else shown


def _endpoints(obj: Document) -> str:
    found = []
    for subset in obj.get("subsets") or []:
        ports = subset.get("ports") or [{}]
        for port in ports:
            suffix = f":{port['port']}" if port.get("port") else ""
            found += [f"{address.get('ip') or ''}{suffix}" for address in subset.get("addresses") or []]
    return _first_few(found, _NONE)


def _slice_ports(obj: Document) -> str:
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or []]
    return _first_few(ports, _UNSET)


def _slice_addresses(obj: Document) -> str:
    endpoints = obj.get("endpoints") or []
    return _first_few([address for each in endpoints for address in each.get("addresses") or []], _UNSET)


def _hosts(ingress: Document) -> str:
    rules = ingress["spec"].get("rules") or []
    return _first_few([rule["host"] for rule in rules if rule.get("host")], "*")


def _addresses(ingress: Document) -> str:
    found = lookup(ingress, ("status", "loadBalancer", "ingress")) or []
    return ",".join(each.get("ip") or each.get("hostname") or "" for each in found)


ENDPOINTS = table(NAME, computed("Endpoints", _endpoints), AGE)
ENDPOINT_SLICE = table(
    NAME,
    text("AddressType", "addressType"),
    computed("Ports", _slice_ports),
    computed("Endpoints", _slice_addresses),
    AGE,
)
INGRESS = table(
    NAME,
    text("Class", "spec.ingressClassName", absent=_NONE),
    computed("Hosts", _hosts),
    computed("Address", _addresses),
    computed("Ports", lambda obj: "80, 443" if obj["spec"].get("tls") else "80"),
    AGE,
)
