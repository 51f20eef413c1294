"""DefaultTolerationSeconds, and how tolerations of two sources become one list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordinator.api.document import Document, same
from koordinator.cluster.admission.chain import Plugin
from koordinator.cluster.verbs.environment import Attributes

_SECONDS: Final = 300
_LOST_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class DefaultTolerationSeconds(Plugin):
    """A pod that says nothing of lost nodes stays on one for five minutes."""

    name = "DefaultTolerationSeconds"
    resources = (("", "pods"),)
    operations = ("CREATE", "UPDATE")

    async def mutate(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        given = spec.get("tolerations") or []
        missing = [key for key in _LOST_NODE_TAINTS if not any(_covers(toleration, key) for toleration in given)]
        if missing:
            added = [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS}
                for key in missing
            ]
            spec["tolerations"] = [*given, *added]


def _covers(toleration: Document, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def merged(first: Sequence[Document], second: Sequence[Document]) -> list[Document]:
    """Both, without those that another one covers; of equal ones the first stays."""
    together = [*first, *second]
    kept: list[Document] = []
    for index, toleration in enumerate(together):
        later = (each for each in together[index + 1 :] if not same(each, toleration))
        if not any(_includes(each, toleration) for each in (*kept, *later)):
            kept.append(toleration)
    return kept


def _includes(wide: Document, narrow: Document) -> bool:
    """Whether ``wide`` tolerates all that ``narrow`` does, as Kubernetes decides it."""
    if same(wide, narrow):
        return True
    operator = wide.get("operator") or "Equal"
    key, effect = wide.get("key") or "", wide.get("effect") or ""
    if key != (narrow.get("key") or "") and (key or operator != "Exists"):
        return False
    if effect and effect != (narrow.get("effect") or ""):
        return False
    seconds, narrow_seconds = wide.get("tolerationSeconds"), narrow.get("tolerationSeconds")
    if effect == "NoExecute" and seconds is not None and (narrow_seconds is None or narrow_seconds > seconds):
        return False
    if operator == "Equal":
        return narrow.get("operator") == "Equal" and (narrow.get("value") or "") == (wide.get("value") or "")
    return operator == "Exists"
