"""The rules for names, as the strategies of kinds ask for them; they lie in ``api``, since admission asks too."""

from koordinator.api.names import (
    NameCheck,
    dns_1035_label,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    path_segment,
)

__all__ = [
    "NameCheck",
    "dns_1035_label",
    "dns_label",
    "dns_subdomain",
    "label_key",
    "label_value",
    "path_segment",
]
