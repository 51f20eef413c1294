"""What makes a pod of a StatefulSet that one: its ordinal, its name, its claims. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from koordinator.api.document import Document, copied
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.ownership import controller_reference
from koordinator.cluster.controllers.pod_control import pod_of
from koordinator.cluster.controllers.revision_history import REVISION_HASH
from koordinator.cluster.controllers.stateful_set.types import STATEFUL_SETS, StatefulSet

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


def ordinal_of(stateful_set: StatefulSet, pod_name: str) -> int | None:
    """The ordinal in the name of a pod; None if it is not the name of a pod of this StatefulSet."""
    parent, separator, number = pod_name.rpartition("-")
    if not separator or parent != stateful_set.metadata.name or not (number.isascii() and number.isdigit()):
        return None
    return int(number) if len(number) < 10 and str(int(number)) == number else None


def pod_name(stateful_set: StatefulSet, ordinal: int) -> str:
    return f"{stateful_set.metadata.name}-{ordinal}"


def revision_of(pod: Pod) -> str:
    """The name of the ControllerRevision that the pod was made of."""
    return pod.metadata.labels.get(REVISION_HASH, "")


def new_pod(stateful_set: StatefulSet, template: Document, ordinal: int, revision: str) -> Document:
    """The pod with this ordinal; ``template`` is that of ``revision``."""
    name = pod_name(stateful_set, ordinal)
    body = pod_of(STATEFUL_SETS, stateful_set, template, name=name)
    identity = {POD_NAME: name, POD_INDEX: str(ordinal), REVISION_HASH: revision}
    body["metadata"]["labels"] = body["metadata"].get("labels", {}) | identity
    spec = body["spec"]
    spec["hostname"] = name
    if stateful_set.spec.service_name:
        spec["subdomain"] = stateful_set.spec.service_name
    claims = dict(claim_names(stateful_set, ordinal))
    if claims:
        others = [volume for volume in spec.get("volumes") or () if volume.get("name") not in claims]
        own = [{"name": each, "persistentVolumeClaim": {"claimName": claims[each]}} for each in claims]
        spec["volumes"] = [*own, *others]
    return body


def missing_identity(stateful_set: StatefulSet, pod: Pod, ordinal: int) -> dict[str, str]:
    """The labels of its identity that a pod has lost."""
    wanted = {POD_NAME: pod_name(stateful_set, ordinal), POD_INDEX: str(ordinal)}
    return {key: value for key, value in wanted.items() if pod.metadata.labels.get(key) != value}


def claim_names(stateful_set: StatefulSet, ordinal: int) -> Iterator[tuple[str, str]]:
    """The names of the volumes and of the claims of a pod."""
    for template in stateful_set.spec.volume_claim_templates:
        volume = (template.get("metadata") or {}).get("name") or ""
        yield volume, f"{volume}-{stateful_set.metadata.name}-{ordinal}"


def new_claims(stateful_set: StatefulSet, ordinal: int) -> list[Document]:
    """The PersistentVolumeClaims of a pod."""
    selector = stateful_set.spec.selector
    selected = selector.match_labels if selector is not None else {}
    claims: list[Document] = []
    names = claim_names(stateful_set, ordinal)
    for template, (_, name) in zip(stateful_set.spec.volume_claim_templates, names, strict=True):
        given = template.get("metadata") or {}
        metadata: Document = {"name": name, "labels": copied(given.get("labels") or {}) | selected}
        if given.get("annotations"):
            metadata["annotations"] = copied(given["annotations"])
        if stateful_set.spec.persistent_volume_claim_retention_policy.when_deleted == "Delete":
            metadata["ownerReferences"] = [controller_reference(STATEFUL_SETS, stateful_set)]
        claims.append({"metadata": metadata, "spec": copied(template.get("spec") or {})})
    return claims
