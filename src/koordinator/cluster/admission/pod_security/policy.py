"""The policy of a namespace: the standard that its pods must meet, and those that are only warned of or recorded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from koordinator.api.document import Document
from koordinator.cluster.admission.pod_security.standards import (
    LEVELS,
    NEWEST,
    PRIVILEGED,
    RESTRICTED,
    Finding,
    findings,
)
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid

PREFIX: Final = "pod-security.kubernetes.io/"
LATEST: Final = "latest"
_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]*)", re.ASCII)
_WRONG_VERSION: Final = 'must be "latest" or "v1.x"'


class Standard(NamedTuple):
    """A level as of a version of Kubernetes."""

    level: str = PRIVILEGED
    version: str = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    @property
    def rank(self) -> int:
        return LEVELS.index(self.level)

    def findings(self, annotations: Document, spec: Document) -> list[Finding]:
        """What is wrong with a pod, or with a template."""
        minor = NEWEST if self.version == LATEST else int(self.version.removeprefix("v1."))
        return findings(self.level, minor, annotations, spec)


class Policy(NamedTuple):
    """What is recorded in the audit log is not here, since there is no such log."""

    enforce: Standard = Standard()
    warn: Standard = Standard()


UNRESTRICTED: Final = Policy()


def policy_of(labels: Mapping[str, str]) -> tuple[Policy, list[Cause]]:
    """Of a namespace with these labels, and what is wrong with them: a level that is not known enforces the strictest
    one, and warns of nothing."""
    if not any(label.startswith(PREFIX) for label in labels):
        return UNRESTRICTED, []
    causes: list[Cause] = []
    enforce = Standard(_level(labels, "enforce", RESTRICTED, causes), _version(labels, "enforce-version", causes))
    _level(labels, "audit", PRIVILEGED, causes)
    _version(labels, "audit-version", causes)
    warn = Standard(_level(labels, "warn", PRIVILEGED, causes), _version(labels, "warn-version", causes))
    # What is enforced is warned of, too: templates are not refused.
    if f"{PREFIX}warn" not in labels and labels.get(f"{PREFIX}enforce") in LEVELS and enforce.rank > warn.rank:
        version = warn.version if f"{PREFIX}warn-version" in labels else enforce.version
        warn = Standard(enforce.level, version)
    return Policy(enforce, warn), causes


def _level(labels: Mapping[str, str], name: str, otherwise: str, causes: list[Cause]) -> str:
    level = labels.get(f"{PREFIX}{name}")
    if level is None:
        return PRIVILEGED
    if level in LEVELS:
        return level
    causes.append(invalid(f"metadata.labels[{PREFIX}{name}]", level, f"must be one of {', '.join(LEVELS)}"))
    return otherwise


def _version(labels: Mapping[str, str], name: str, causes: list[Cause]) -> str:
    version = labels.get(f"{PREFIX}{name}", LATEST)
    if version == LATEST or _VERSION.fullmatch(version):
        return version
    causes.append(invalid(f"metadata.labels[{PREFIX}{name}]", version, _WRONG_VERSION))
    return LATEST
