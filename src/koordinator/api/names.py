"""Which names, label keys and label values are allowed, and what the real server says of the others.

Each check returns the errors about one text, none when it is well formed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

NameCheck = Callable[[str], list[str]]

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_QUALIFIED})?"

_WILDCARD: Final = rf"\*\.{_SUBDOMAIN}"
_SEARCH_LABEL: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH: Final = rf"{_SEARCH_LABEL}(\.{_SEARCH_LABEL})*"
_SEARCH_PATTERN: Final = re.compile(_SEARCH)
_DATA_KEY: Final = "[-._a-zA-Z0-9]+"
_DATA_KEY_PATTERN: Final = re.compile(_DATA_KEY)
_KEY_LIMIT: Final = 253
_C_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"

_WILDCARD_PATTERN: Final = re.compile(_WILDCARD)
_C_IDENTIFIER_PATTERN: Final = re.compile(_C_IDENTIFIER)
_PORT_PATTERN: Final = re.compile("[-a-z0-9]+")
_ENVIRONMENT: Final = re.compile("[ -<>-~]*")
"""Printable ASCII but the equals sign."""
_LABEL_PATTERN: Final = re.compile(_LABEL)
_SUBDOMAIN_PATTERN: Final = re.compile(_SUBDOMAIN)
_DNS_1035_PATTERN: Final = re.compile(_DNS_1035)
_QUALIFIED_PATTERN: Final = re.compile(_QUALIFIED)
_LABEL_VALUE_PATTERN: Final = re.compile(_LABEL_VALUE)

_ALPHANUMERIC_ENDS: Final = "must start and end with an alphanumeric character"
_QUALIFIED_RULE: Final = f"must consist of alphanumeric characters, '-', '_' or '.', and {_ALPHANUMERIC_ENDS}"


def dns_label(text: str) -> list[str]:
    """An RFC 1123 label: namespaces, containers, ports."""
    errors = ["must be no more than 63 characters"] if len(text) > 63 else []
    if not _LABEL_PATTERN.fullmatch(text):
        if _SUBDOMAIN_PATTERN.fullmatch(text):
            errors.append("must not contain dots")
        else:
            rule = (
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
                f"and {_ALPHANUMERIC_ENDS}"
            )
            errors.append(_with_pattern(rule, _LABEL, "my-name", "123-abc"))
    return errors


def dns_subdomain(text: str) -> list[str]:
    """An RFC 1123 subdomain: the names of most kinds."""
    errors = ["must be no more than 253 characters"] if len(text) > 253 else []
    if not _SUBDOMAIN_PATTERN.fullmatch(text):
        rule = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            f"and {_ALPHANUMERIC_ENDS}"
        )
        errors.append(_with_pattern(rule, _SUBDOMAIN, "example.com"))
    return errors


def dns_1035_label(text: str) -> list[str]:
    """A label that does not begin with a digit: services."""
    errors = ["must be no more than 63 characters"] if len(text) > 63 else []
    if not _DNS_1035_PATTERN.fullmatch(text):
        rule = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
            "start with an alphabetic character, and end with an alphanumeric character"
        )
        errors.append(_with_pattern(rule, _DNS_1035, "my-name", "abc-123"))
    return errors


def wildcard_subdomain(text: str) -> list[str]:
    """A subdomain whose first label is ``*``."""
    errors = ["must be no more than 253 characters"] if len(text) > 253 else []
    if not _WILDCARD_PATTERN.fullmatch(text):
        rule = (
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist "
            "of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
        )
        errors.append(_with_pattern(rule, _WILDCARD, "*.example.com"))
    return errors


def search_domain(text: str) -> list[str]:
    """A domain in which host names are looked up: its labels may begin with an underscore, as those of services do."""
    errors = ["must be no more than 253 characters"] if len(text) > 253 else []
    if not _SEARCH_PATTERN.fullmatch(text):
        rule = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
            f"and {_ALPHANUMERIC_ENDS}"
        )
        errors.append(_with_pattern(rule, _SEARCH, "example.com"))
    return errors


def environment_name(text: str) -> list[str]:
    """The name of an environment variable."""
    rule = "a valid environment variable name must consist only of printable ASCII characters other than '='"
    return [] if _ENVIRONMENT.fullmatch(text) else [rule]


def port_name(text: str) -> list[str]:
    """The name of a port, as IANA's service names are."""
    errors = ["must be no more than 15 characters"] if len(text) > 15 else []
    if not _PORT_PATTERN.fullmatch(text):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= character <= "z" for character in text):
        errors.append("must contain at least one letter (a-z)")
    if "--" in text:
        errors.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def c_identifier(text: str) -> list[str]:
    """A name as C has it."""
    if _C_IDENTIFIER_PATTERN.fullmatch(text):
        return []
    rule = (
        "a valid C identifier must start with alphabetic character or '_', "
        "followed by a string of alphanumeric characters or '_'"
    )
    return [_with_pattern(rule, _C_IDENTIFIER, "my_name", "MY_NAME", "MyName")]


def data_key(text: str) -> list[str]:
    """A key of a ConfigMap or a Secret, which may be the name of a file."""
    errors = [f"must be no more than {_KEY_LIMIT} characters"] if len(text) > _KEY_LIMIT else []
    if not _DATA_KEY_PATTERN.fullmatch(text):
        rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        errors.append(_with_pattern(rule, _DATA_KEY, "key.name", "KEY_NAME", "key-name"))
    return errors


def subdomain_in_bytes(text: str) -> list[str]:
    """A subdomain, of which the real server states the limit in bytes for some kinds."""
    return [detail.replace("253 characters", "253 bytes") for detail in dns_subdomain(text)]


def path_segment(text: str) -> list[str]:
    """Names that only have to fit in a URL: RBAC objects."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in text]


def label_key(text: str) -> list[str]:
    """A label or annotation key, a taint key, a finalizer: ``[prefix/]name``."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        rule = _with_pattern(f"a valid label key {_QUALIFIED_RULE}", _QUALIFIED, "MyName", "my.name", "123-abc")
        return [f"{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    errors = []
    if slash and not prefix:
        errors.append("prefix part must be non-empty")
    elif slash:
        errors += [f"prefix part {detail}" for detail in dns_subdomain(prefix)]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not _QUALIFIED_PATTERN.fullmatch(name):
        errors.append("name part " + _with_pattern(_QUALIFIED_RULE, _QUALIFIED, "MyName", "my.name", "123-abc"))
    return errors


def label_value(text: str) -> list[str]:
    errors = ["must be no more than 63 bytes"] if len(text) > 63 else []
    if not _LABEL_VALUE_PATTERN.fullmatch(text):
        rule = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            f"and {_ALPHANUMERIC_ENDS}"
        )
        errors.append(_with_pattern(rule, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return errors


def _with_pattern(rule: str, pattern: str, *examples: str) -> str:
    # The comma after each example is the real server's.
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {listed}regex used for validation is '{pattern}')"
