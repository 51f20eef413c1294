"""What an expression about a request may name (k8s.io/apiserver, ``admission/plugin/cel/compile.go``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from koordinator.cluster.admission_expressions.authorization import AUTHORIZATION, AUTHORIZER, RESOURCE_CHECK
from koordinator.model.cel.functions import Functions, functions
from koordinator.model.cel.program import Declarations, kubernetes_functions
from koordinator.model.cel.types import BOOL, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of, object_type

REQUEST_RESOURCE: Final = "authorizer.requestResource"
_VARIABLES: Final = "kubernetes.variables"
_TEXTS: Final = map_of(STRING, STRING)
_KIND: Final = object_type("kubernetes.GroupVersionKind")
_RESOURCE: Final = object_type("kubernetes.GroupVersionResource")
_FIELDS: Final[Mapping[str, Mapping[str, Type]]] = {
    "kubernetes.GroupVersionKind": dict.fromkeys(("group", "version", "kind"), STRING),
    "kubernetes.GroupVersionResource": dict.fromkeys(("group", "version", "resource"), STRING),
    "kubernetes.UserInfo": {
        "username": STRING,
        "uid": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
    "kubernetes.AdmissionRequest": {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": object_type("kubernetes.UserInfo"),
        "dryRun": BOOL,
        "options": DYN,
    },
    "kubernetes.Namespace": {
        "metadata": object_type("kubernetes.NamespaceMetadata"),
        "spec": object_type("kubernetes.NamespaceSpec"),
        "status": object_type("kubernetes.NamespaceStatus"),
    },
    "kubernetes.NamespaceMetadata": {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), STRING),
        **dict.fromkeys(("labels", "annotations"), _TEXTS),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), INT),
        "finalizers": list_of(STRING),
    },
    "kubernetes.NamespaceSpec": {"finalizers": list_of(STRING)},
    "kubernetes.NamespaceStatus": {
        "conditions": list_of(object_type("kubernetes.NamespaceCondition")),
        "phase": STRING,
    },
    "kubernetes.NamespaceCondition": {
        **dict.fromkeys(("status", "type", "message", "reason"), STRING),
        "lastTransitionTime": TIMESTAMP,
    },
}


@lru_cache(maxsize=1)
def _functions() -> Functions:
    return functions(*kubernetes_functions().values(), AUTHORIZATION)


def request_declarations(
    *, params: bool = False, authorizer: bool = True, variables: Mapping[str, Type] | None = None
) -> Declarations:
    """``variables`` are those of a policy, by their names below ``variables``; None where there are none at all."""
    names = {
        "object": DYN,
        "oldObject": DYN,
        "request": object_type("kubernetes.AdmissionRequest"),
        "namespaceObject": object_type("kubernetes.Namespace"),
    }
    if params:
        names["params"] = DYN
    if authorizer:
        names |= {"authorizer": AUTHORIZER, REQUEST_RESOURCE: RESOURCE_CHECK}
    if variables is not None:
        names["variables"] = object_type(_VARIABLES)
    own = {**_FIELDS, _VARIABLES: variables or {}}
    return Declarations(names, own.get, _functions())
