"""What IPAddresses and ServiceCIDRs must say, which hold the cluster IPs of Services and their ranges."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.names import dns_subdomain, path_segment
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid, required
from koordinator.cluster.strategy.network_rules import CIDR, IP, read_address, read_block
from koordinator.cluster.strategy.rules import IMMUTABLE, Rules, name, required_name

_CIDRS: Final = "spec.cidrs"
_OF_ONE_FAMILY: Final = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


def address_name(text: str) -> list[str]:
    """The name of an IPAddress is the address, in its canonical form."""
    address = read_address(text)
    if address is None:
        return [IP]
    return [] if str(address) == text else [f'must be in canonical form ("{address}")']


def _parent(value: Any, field: str) -> list[Cause]:
    return [required(field)] if value is None else []


_ADDRESS: Final = Rules(
    ("spec.parentRef", _parent),
    ("spec.parentRef.group", name(dns_subdomain)),
    ("spec.parentRef.resource", required_name(path_segment)),
    ("spec.parentRef.name", required_name(path_segment)),
    ("spec.parentRef.namespace", name(path_segment)),
)


def ip_address(obj: Document, old: Document | None) -> list[Cause]:
    causes = _ADDRESS.check(obj)
    parent = obj["spec"].get("parentRef")
    if old is not None and not same(parent, old["spec"].get("parentRef")):
        causes.append(invalid("spec.parentRef", parent, IMMUTABLE))
    return causes


def service_cidr(obj: Document, old: Document | None) -> list[Cause]:
    """A second block of the other family may be added; nothing else changes."""
    blocks = obj["spec"].get("cidrs") or []
    if old is None:
        return _blocks(obj["spec"], blocks)
    before = old["spec"].get("cidrs") or []
    changed = [
        invalid(f"{_CIDRS}[{index}]", block, IMMUTABLE)
        for index, (block, known) in enumerate(zip(blocks, before, strict=False))
        if block != known
    ]
    if len(blocks) == len(before):
        return changed
    if (len(before), len(blocks)) == (1, 2):
        return changed + _blocks(obj["spec"], blocks)
    return [invalid(_CIDRS, blocks, IMMUTABLE)]


def _blocks(spec: Document, blocks: list[str]) -> list[Cause]:
    if not blocks:
        return [required(_CIDRS, "at least one CIDR required")]
    if len(blocks) > 2:
        return [invalid(_CIDRS, spec, "may only hold up to 2 values")]
    causes = [cause for index, block in enumerate(blocks) for cause in _block(block or "", f"{_CIDRS}[{index}]")]
    versions = [found.version for block in blocks if (found := read_block(block or "")) is not None]
    if len(versions) == 2 and versions[0] == versions[1]:
        causes.append(invalid(_CIDRS, blocks, _OF_ONE_FAMILY))
    return causes


def _block(text: str, field: str) -> list[Cause]:
    block = read_block(text)
    if block is None:
        return [invalid(field, text, CIDR)]
    return [] if str(block) == text else [invalid(field, text, f'must be in canonical form ("{block}")')]
