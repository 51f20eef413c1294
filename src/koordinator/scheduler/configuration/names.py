"""Which texts can be names of resources (k8s.io/apimachinery, IsQualifiedName; IsExtendedResourceName)."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_NAME: Final = 63
_LONGEST_SUBDOMAIN: Final = 253
_REQUESTS: Final = "requests."

QUALIFIED_NAME: Final = "a name of letters, digits, '-', '_' and '.', with at most a DNS subdomain and '/' before it"


def is_qualified_name(text: str) -> bool:
    """Whether the text can be a label key or a resource name."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def is_extended_resource(name: str) -> bool:
    """Whether the name is that of a resource which Kubernetes itself does not define."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_REQUESTS):
        return False
    return is_qualified_name(_REQUESTS + name)
