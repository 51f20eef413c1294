"""The string formats that the real server enforces (k8s.io/kube-openapi, strfmt), each as a question about a text."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date
from email.utils import parseaddr
from typing import Final
from urllib.parse import urlsplit

from koordinator.base.durations import DurationError, parse_duration

Check = Callable[[str], object]

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_DURATION: Final = re.compile(r"(?<!\d)(\d++)\s*+([A-Za-zµ]+)")
"""A run of digits is looked at once: without that a long one would be looked at from each of its digits."""
_UNITS: Final = (
    ("ns", "nano"), ("us", "µs", "micro"), ("ms", "milli"), ("s", "sec"), ("m", "min"), ("h", "hr", "hour"),
    ("d", "day"), ("w", "wk", "week"),
)  # fmt: skip
_HOST_LABEL: Final = re.compile(r"[^\W_](?:-?[^\W_]{0,62})?")
_HOST_PART: Final = re.compile(r"[^\W_](?:(?:[^\W_]|-){0,61}[^\W_])?")
_TOP_LEVEL: Final = re.compile(r"[^\W\d_]{2,63}")
_PREFIX_LENGTH: Final = re.compile("[0-9]{1,3}")
_LONGEST_ADDRESS: Final = 500
"""Characters, with a name and comments; the parser of addresses goes down a level for each bracket."""
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def _matches(pattern: str, flags: int = re.ASCII) -> Check:
    return re.compile(pattern, flags).fullmatch


def _uuid(version: str = "[0-9a-f]", variant: str = "[0-9a-f]") -> Check:
    hexadecimal = "[0-9a-f]"
    return _matches(
        f"{hexadecimal}{{8}}-?{hexadecimal}{{4}}-?{version}{hexadecimal}{{3}}-?{variant}{hexadecimal}{{3}}-?{hexadecimal}{{12}}",
        re.ASCII | re.IGNORECASE,
    )


def is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_date_time(text: str) -> bool:
    day, separator, rest = text.lower().partition("t")
    found = _TIME.fullmatch(rest)
    if not separator or found is None or not is_date(day):
        return False
    return found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def is_duration(text: str) -> bool:
    """Go's own form, or numbers with units in words, anywhere in the text."""
    try:
        parse_duration(text)
    except DurationError:
        return any(_is_unit(unit.lower()) for _, unit in _DURATION.findall(text))
    return True


def _is_unit(unit: str) -> bool:
    return any(unit in names or unit.startswith(names[-1]) for names in _UNITS)


def is_host_name(text: str) -> bool:
    if len(text.encode()) > 255 or any(len(part.encode()) > 63 for part in text.split(".")):
        return False
    if _HOST_LABEL.fullmatch(text):
        return True
    *parts, last = text.split(".")
    return bool(parts) and all(map(_HOST_PART.fullmatch, parts)) and bool(_TOP_LEVEL.fullmatch(last))


def is_uri(text: str) -> bool:
    """What Go's url.ParseRequestURI takes: an absolute URI or an absolute path."""
    if not text or any(ord(character) <= 0x20 or ord(character) == 0x7F for character in text):
        return False
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        return False
    try:
        parts = urlsplit(text)
        valid_port = parts.port is None or parts.port >= 0
    except ValueError:
        return False
    return valid_port and bool(parts.scheme or text.startswith("/")) and not text.startswith(":")


def is_email(text: str) -> bool:
    if len(text) > _LONGEST_ADDRESS:
        return False
    _, address = parseaddr(text)
    local, _, domain = address.rpartition("@")
    return bool(local and domain) and not re.search(r"\s", address) and not domain.startswith(".")


def _sloppy(text: str) -> str:
    """Leading zeros were fine for Go once, and still are here."""
    return ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in text.split("."))


def is_ipv4(text: str) -> bool:
    """The real server takes what parses as an address and has a dot."""
    return "." in text and _is_address(text)


def is_ipv6(text: str) -> bool:
    return ":" in text and _is_address(text)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(_sloppy(text) if ":" not in text else text)
    except ValueError:
        return False
    return "%" not in text


def is_cidr(text: str) -> bool:
    address, separator, length = text.partition("/")
    if not separator or not _PREFIX_LENGTH.fullmatch(length) or not _is_address(address):
        return False
    return int(length) <= (128 if ":" in address else 32)


def is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((10 if digit == "X" else int(digit)) * (at + 1) for at, digit in enumerate(digits)) % 11 == 0


def is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(digits)) % 10 == 0


def is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    known = (
        r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|"
        r"3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}"
    )
    if not re.fullmatch(known, digits):
        return False
    doubled = [int(digit) * 2 if at % 2 else int(digit) for at, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


_MAC: Final = tuple(
    re.compile(rf"{part}(?:({separators}){part})(?:\1{part}){{{count - 2}}}")
    for part, separators, counts in (("[0-9a-fA-F]{2}", "[:-]", (6, 8, 20)), ("[0-9a-fA-F]{4}", r"\.", (3, 4, 10)))
    for count in counts
)
"""48 and 64 bits and InfiniBand's 20 octets, two or four digits at a time."""
_BYTE: Final = r"0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5]"

FORMATS: Final[Mapping[str, Check]] = {
    "bsonobjectid": _matches("[0-9a-fA-F]{24}"),
    "uri": is_uri,
    "email": is_email,
    "hostname": is_host_name,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "cidr": is_cidr,
    "mac": lambda text: any(form.fullmatch(text) for form in _MAC),
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "creditcard": is_credit_card,
    "ssn": _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _matches("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matches(rf"rgb\(\s*({_BYTE})\s*,\s*({_BYTE})\s*,\s*({_BYTE})\s*\)"),
    "byte": _matches("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": is_date,
    "duration": is_duration,
    "datetime": is_date_time,
    "k8sshortname": lambda text: len(text) <= 63 and re.fullmatch(_LABEL, text),
    "k8slongname": lambda text: len(text) <= 253 and re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", text),
}
"""Name without dashes -> a check; whatever is true in Python is a yes."""
