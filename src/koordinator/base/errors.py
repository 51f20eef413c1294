"""The root of the exception tree; every package derives its own branch from it."""

from __future__ import annotations


class KoordinatorError(Exception):
    """Anything that this project raises on purpose."""


class ConfigurationError(KoordinatorError):
    """Configuration that cannot be used; the text names the field, the value and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}: {value!r} is not usable: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed
