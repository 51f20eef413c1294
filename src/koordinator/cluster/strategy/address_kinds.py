"""IPAddresses and ServiceCIDRs: what they must say, and their tables."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import dns_subdomain, path_segment
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid, required
from koordinator.cluster.strategy.network_rules import cidr, read_address, read_block
from koordinator.cluster.strategy.rules import IMMUTABLE, Rules, immutable, name, name_or_empty, required_name
from koordinator.cluster.strategy.table import AGE, NAME, computed, table

_NOT_AN_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_LEADING_ZEROS: Final = re.compile(r"(\d{1,3}\.)*0\d{1,2}(\.\d{1,3})*")
_CIDRS: Final = "spec.cidrs"
_ONE_FAMILY: Final = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
_PARENT: Final = Rules(
    ("group", name(dns_subdomain)),
    ("resource", required_name(path_segment)),
    ("name", required_name(path_segment)),
    ("namespace", name_or_empty(path_segment)),
)


def address_name(text: str) -> list[str]:
    """An IPAddress is named for its address, in the one form that each has."""
    address = read_address(text)
    if address is None:
        return ["must not have leading 0s" if _LEADING_ZEROS.fullmatch(text) else _NOT_AN_ADDRESS]
    return [] if str(address) == text else [f'must be in canonical form ("{address}")']


def ip_address(obj: Document, old: Document | None) -> list[Cause]:
    parent = obj["spec"].get("parentRef")
    causes = [required("spec.parentRef")] if parent is None else _PARENT.check(parent, "spec.parentRef")
    return causes if old is None else causes + immutable(obj, old, ("spec.parentRef",))


def service_cidr(obj: Document, old: Document | None) -> list[Cause]:
    blocks = obj["spec"].get("cidrs") or []
    if old is None:
        return _blocks(blocks)
    before = old["spec"].get("cidrs") or []
    if len(blocks) not in (len(before), 2) or (len(blocks) != len(before) and len(before) != 1):
        return [invalid(_CIDRS, blocks, IMMUTABLE)]
    changed = [
        invalid(f"{_CIDRS}[{index}]", blocks[index], IMMUTABLE)
        for index, block in enumerate(before)
        if blocks[index] != block
    ]
    return changed if len(blocks) == len(before) else changed + _blocks(blocks)


def _blocks(blocks: list[str]) -> list[Cause]:
    if not blocks:
        return [required(_CIDRS, "at least one CIDR required")]
    if len(blocks) > 2:
        return [invalid(_CIDRS, {"CIDRs": blocks}, "may only hold up to 2 values")]
    causes = [cause for index, block in enumerate(blocks) for cause in _block(block, f"{_CIDRS}[{index}]")]
    families = [found.version for block in blocks if (found := read_block(block)) is not None]
    return [*causes, invalid(_CIDRS, blocks, _ONE_FAMILY)] if families in ([4, 4], [6, 6]) else causes


def _block(text: str, field: str) -> list[Cause]:
    if causes := cidr(text, field):
        return causes
    if ipaddress.ip_interface(text).ip != read_block(text).network_address:
        return [invalid(field, text, "must not have bits set beyond the prefix length")]
    return []


def _parent(obj: Document) -> str:
    parent = obj["spec"].get("parentRef") or {}
    kind = f"{parent.get('resource') or ''}.{parent['group']}" if parent.get("group") else parent.get("resource") or ""
    return "/".join(filter(None, (kind, parent.get("namespace"), parent.get("name"))))


IP_ADDRESS: Final = table(NAME, computed("ParentRef", _parent))
SERVICE_CIDR: Final = table(NAME, computed("CIDRs", lambda obj: ",".join(obj["spec"].get("cidrs") or [])), AGE)
