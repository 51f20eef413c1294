"""Named formats of texts (k8s.io/apiserver, ``library/format.go``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from koordinator.api.names import dns_1035_label, dns_label, dns_subdomain, label_key, label_value
from koordinator.api.string_formats import FORMATS
from koordinator.model.cel.functions import Overload, overloads
from koordinator.model.cel.library.network import URLError, parse_request_uri
from koordinator.model.cel.values import NONE, Optional

_LONGEST: Final = 10_000
"""Characters that are looked at; no format is as long."""


@dataclass(frozen=True, slots=True)
class NamedFormat:
    name: str
    check: Callable[[str], list[str]]
    """What is wrong with a text."""
    pattern_length: int
    """What the check costs, as the length of a pattern."""
    cel_type: ClassVar[str] = "kubernetes.NamedFormat"
    cel_opaque: ClassVar[bool] = True


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Of a name that something is added to: it may end with a dash."""
    return lambda text: check(f"{text[:-1]}a" if text.endswith("-") and len(text) > 1 else text)


def _of_format(name: str, complaint: str) -> Callable[[str], list[str]]:
    return lambda text: [] if FORMATS[name](text) else [complaint]


def _uri(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except URLError as error:
        return [str(error)]
    return []


_NAMED: Final = {
    "dns1123Label": NamedFormat("DNS1123Label", dns_label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", dns_subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", dns_1035_label, 30),
    "qualifiedName": NamedFormat("QualifiedName", label_key, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(dns_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix(dns_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(dns_1035_label), 30),
    "labelValue": NamedFormat("LabelValue", label_value, 40),
    "uri": NamedFormat("URI", _uri, 1400),
    "uuid": NamedFormat("uuid", _of_format("uuid", "does not match the UUID format"), 90),
    "byte": NamedFormat("byte", _of_format("byte", "invalid base64"), 84),
    "date": NamedFormat("date", _of_format("date", "invalid date"), 100),
    "datetime": NamedFormat("datetime", _of_format("datetime", "invalid datetime"), 100),
}


def _validate(of: NamedFormat, text: str) -> Optional:
    wrong = of.check(text[:_LONGEST])
    return Optional(True, wrong) if wrong else NONE


def _returning(value: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: value


_TYPE: Final = "kubernetes.NamedFormat"
NAMED_FORMATS: Final[list[Overload]] = overloads((
    ("format-validate", f"{_TYPE}->validate(string): optional(list(string))", _validate),
    ("format-named", f"format.named(string): optional({_TYPE})",
     lambda name: Optional(True, _NAMED[name]) if name in _NAMED else NONE),
    *((f"format.{name}", f"format.{name}(): {_TYPE}", _returning(of)) for name, of in _NAMED.items()),
))  # fmt: skip
