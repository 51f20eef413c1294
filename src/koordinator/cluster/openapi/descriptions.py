"""What ``kubectl explain`` says of the built-in kinds; read when the first OpenAPI document is made, not before."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources


@cache
def descriptions() -> Mapping[str, Mapping[str, str]]:
    """Type -> field -> text; the field of the type itself is empty."""
    return tomllib.loads(resources.files(__package__).joinpath("descriptions.toml").read_text(encoding="utf-8"))
