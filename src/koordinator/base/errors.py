"""The root of the exception hierarchy; every package derives its own exceptions from it."""

from __future__ import annotations


class KoordinatorError(Exception):
    """Base class of all exceptions that koordinator raises deliberately."""


class ConfigurationError(KoordinatorError):
    """Invalid configuration; the message names the field, the value and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}: {value!r} is not usable: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed
