"""Which plugins there are."""

from __future__ import annotations

from typing import Final

from koordinator.cluster.admission.certificates import CertificateSubjectRestriction
from koordinator.cluster.admission.chain import AdmissionChain, Plugin
from koordinator.cluster.admission.ingress_class import DefaultIngressClass
from koordinator.cluster.admission.limit_ranger import LimitRanger
from koordinator.cluster.admission.namespace_lifecycle import NamespaceLifecycle
from koordinator.cluster.admission.nodes import PodTopologyLabels, TaintNodesByCondition
from koordinator.cluster.admission.pod_security.plugin import PodSecurity
from koordinator.cluster.admission.priority import Priority
from koordinator.cluster.admission.runtime_class import RuntimeClass
from koordinator.cluster.admission.storage import (
    DefaultStorageClass,
    PersistentVolumeClaimResize,
    StorageObjectInUseProtection,
)
from koordinator.cluster.admission.tolerations import DefaultTolerationSeconds

OF_OBJECTS: Final[tuple[Plugin, ...]] = (
    LimitRanger(),
    PodSecurity(),
    Priority(),
    DefaultTolerationSeconds(),
    DefaultStorageClass(),
    PersistentVolumeClaimResize(),
    RuntimeClass(),
    DefaultIngressClass(),
    PodTopologyLabels(),
    CertificateSubjectRestriction(),
)
"""Need nothing but the objects that are stored."""
WITH_CONTROLLERS: Final[tuple[Plugin, ...]] = (TaintNodesByCondition(), StorageObjectInUseProtection())
"""Add what a controller takes away again, and so run where that controller does."""


def admission_chain(*others: Plugin) -> AdmissionChain:
    """Of a server, with what it has beside the plugins that each has."""
    return AdmissionChain(NamespaceLifecycle(), *OF_OBJECTS, *others)
