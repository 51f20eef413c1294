"""What is asked about: a pod, a node or a quota, in each of the forms that kubectl takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from koordinator.cli.explain_failure import UnusableError

Kind = Literal["pod", "node", "quota"]

_KINDS: Final[dict[str, Kind]] = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "node": "node",
    "nodes": "node",
    "no": "node",
    "quota": "quota",
    "quotas": "quota",
    "elasticquota": "quota",
    "elasticquotas": "quota",
    "eq": "quota",
    "eqs": "quota",
}
_OF_PODS: Final = frozenset(
    {"deployment", "deploy", "replicaset", "rs", "statefulset", "sts", "daemonset", "ds", "job", "cronjob", "cj"}
    | {"service", "svc"}
)
"""Kinds that a user may well name, because their pods are what is pending."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_FORMS: Final = (
    "koord explain pod NAME, koord explain pod/NAME -n NAMESPACE, koord explain node NAME, koord explain quota NAME"
)


@dataclass(frozen=True, slots=True)
class Target:
    """``namespace`` is empty where none was named. With ``guessed`` nobody said that it is a pod."""

    kind: Kind
    name: str
    namespace: str = ""
    guessed: bool = False


def parse_target(words: Sequence[str], namespace: str | None) -> Target:
    """``pod web``, ``po/web``, ``pod shop/web``, ``node n1`` or ``web``. Raises UnusableError with what would do."""
    if not words:
        raise UnusableError(f"what is to be explained? {_FORMS}")
    if len(words) > 2:
        raise UnusableError(f"one pod, node or quota at a time, not {' '.join(words)!r}: {_FORMS}")
    kind, name, guessed = _split(words)
    if kind in ("node", "quota"):
        # As with kubectl, a namespace says nothing about a node; and names of quotas are global.
        return Target(kind, _checked(kind, name))
    within, slash, short = name.rpartition("/")
    if slash and namespace and within != namespace:
        raise UnusableError(f"--namespace: {namespace!r} is not usable: the pod is named {name} already")
    if slash or namespace:
        _checked("namespace", within or namespace or "")
    return Target("pod", _checked("pod", short), within or namespace or "", guessed)


def _split(words: Sequence[str]) -> tuple[Kind, str, bool]:
    if len(words) == 2:
        kind, name = words
        if kind.lower() not in _KINDS:
            raise _unknown(kind, name)
        first, slash, rest = name.partition("/")
        # `node node/n1`: what kubectl get -o name prints may follow the kind.
        same = slash and _KINDS.get(first.lower()) == _KINDS[kind.lower()]
        return _KINDS[kind.lower()], rest if same else name, False
    first, slash, rest = words[0].partition("/")
    if not slash:
        if first.lower() in _KINDS or _has_pods(first):
            example = f"koord explain {first} NAME" if first.lower() in _KINDS else _FORMS
            raise UnusableError(f"which {first}? {example}")
        return "pod", first, True
    if first.lower() in _KINDS:
        return _KINDS[first.lower()], rest, False
    if _has_pods(first):
        raise _unknown(first, rest)
    return "pod", words[0], True


def _unknown(kind: str, name: str) -> UnusableError:
    if _has_pods(kind):
        return UnusableError(
            f"{kind} {name} is not scheduled itself, its pods are: find one with kubectl get pods, then koord explain "
            "pod NAME"
        )
    return UnusableError(f"{kind!r} cannot be explained, pods, nodes and quotas can: {_FORMS}")


def _has_pods(kind: str) -> bool:
    return kind.lower() in _OF_PODS or kind.lower().removesuffix("s") in _OF_PODS


def _checked(what: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        shown = ascii(name)
        raise UnusableError(
            f"{shown} is not the name of a {what}: lower-case letters, digits, '-' and '.' are allowed, at most 253"
        )
    return name
