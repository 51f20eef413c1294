"""The plugins that exist, upstream's and Koordinator's, and the extension points that each implements.

Plugins that are not implemented yet are included, so that a profile that names one is distinguished from one with a
misspelt name. Facts from Kubernetes 1.35 (pkg/scheduler/framework/plugins) and Koordinator 1.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.strict_decoding import decode_strictly
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration import koordinator_arguments as koordinator
from koordinator.scheduler.configuration import upstream_arguments as upstream
from koordinator.scheduler.configuration.third_party import InstalledPlugins, ThirdPartyPlugin

_DEFAULT: Final = {
    "SchedulingGates": (0, "preEnqueue"),
    "PrioritySort": (0, "queueSort"),
    "NodeUnschedulable": (0, "filter"),
    "NodeName": (0, "filter"),
    "TaintToleration": (3, "filter preScore score"),
    "NodeAffinity": (2, "preFilter filter preScore score"),
    "NodePorts": (0, "preFilter filter"),
    "NodeResourcesFit": (1, "preFilter filter preScore score"),
    "VolumeRestrictions": (0, "preFilter filter"),
    "NodeVolumeLimits": (0, "preFilter filter"),
    "VolumeBinding": (0, "preFilter filter preScore score reserve preBind"),
    "VolumeZone": (0, "preFilter filter"),
    "PodTopologySpread": (2, "preFilter filter preScore score"),
    "InterPodAffinity": (2, "preFilter filter preScore score"),
    "DynamicResources": (2, "preEnqueue preFilter filter postFilter score reserve preBind"),
    "DefaultPreemption": (0, "preEnqueue postFilter"),
    "NodeResourcesBalancedAllocation": (1, "preScore score"),
    "ImageLocality": (1, "score"),
    "DefaultBinder": (0, "bind"),
}
"""Upstream's multiPoint list: the weight of each plugin, and the points that it implements."""
_OTHERS: Final = {
    "GangScheduling": "preEnqueue reserve permit",
    "NodeDeclaredFeatures": "preFilter filter",
    "Coscheduling": "preEnqueue preFilter postFilter preScore score reserve permit preBind postBind",
    "Reservation": "preFilter filter postFilter preScore score reserve preBind bind",
    "NodeNUMAResource": "preFilter filter preScore score reserve preBind",
    "DeviceShare": "preFilter filter preScore score reserve preBind",
    "ElasticQuota": "preFilter postFilter reserve",
    "LoadAwareScheduling": "preFilter filter score reserve",
    "SchedulingHint": "preFilter",
    "NodeResourcesFitPlus": "preScore score",
    "ScarceResourceAvoidance": "preScore score",
    "DefaultPreBind": "preBind",
}
"""The points of plugins that are not in that list."""
DEFAULT_PLUGINS: Final = tuple((name, weight) for name, (weight, _) in _DEFAULT.items())
KNOWN_PLUGINS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        name: frozenset(points.split())
        for name, points in (*((name, points) for name, (_, points) in _DEFAULT.items()), *_OTHERS.items())
    }
)
_GROUP: Final = "kubescheduler.config.k8s.io"
VERSION: Final = f"{_GROUP}/v1"
OLD_VERSIONS: Final = (f"{_GROUP}/v1beta2", f"{_GROUP}/v1beta3")
ARGUMENT_KINDS: Final[Mapping[str, type[upstream.Arguments]]] = MappingProxyType(
    {
        kind.__name__.removesuffix("Args"): kind
        for kind in (
            upstream.NodeAffinityArgs,
            upstream.NodeResourcesFitArgs,
            upstream.NodeResourcesBalancedAllocationArgs,
            upstream.VolumeBindingArgs,
            upstream.PodTopologySpreadArgs,
            upstream.InterPodAffinityArgs,
            upstream.DynamicResourcesArgs,
            upstream.DefaultPreemptionArgs,
            koordinator.LoadAwareSchedulingArgs,
            koordinator.NodeNUMAResourceArgs,
            koordinator.DeviceShareArgs,
            koordinator.ReservationArgs,
            koordinator.ElasticQuotaArgs,
            koordinator.CoschedulingArgs,
            koordinator.NodeResourcesFitPlusArgs,
            koordinator.ScarceResourceAvoidanceArgs,
            koordinator.SchedulingHintArgs,
        )
    }
)
"""The arguments of each plugin that takes some, by its name."""


def make_arguments(name: str, document: Mapping[str, Any], path: str) -> upstream.Arguments:
    """The arguments of the plugin ``name`` with defaults. Raises ConfigurationError.

    The type meta may be omitted; if given, it must be right.
    """
    if name not in ARGUMENT_KINDS:
        raise ConfigurationError(path, dict(document), f"none: {name} takes no arguments")
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind not in (None, "", f"{name}Args"):
        raise ConfigurationError(f"{path}.kind", kind, f"{name}Args")
    if version not in (None, "", VERSION, *OLD_VERSIONS):
        raise ConfigurationError(f"{path}.apiVersion", version, VERSION)
    without_type = {field: value for field, value in document.items() if field not in ("kind", "apiVersion")}
    return decode_strictly(without_type, ARGUMENT_KINDS[name], path).completed(path)


class Catalogue:
    """All plugins by name. Plugins of other packages are loaded only for names that are not built in."""

    def __init__(self, installed: InstalledPlugins | None = None) -> None:
        self._installed = installed or InstalledPlugins()

    @property
    def third_party(self) -> Mapping[str, ThirdPartyPlugin]:
        """The plugins of other packages that were loaded so far, by name."""
        return self._installed.loaded

    def __contains__(self, name: str) -> bool:
        return name in KNOWN_PLUGINS or name in self._installed.names

    def points_of(self, name: str, where: str) -> frozenset[str]:
        """The points that the plugin implements. Raises ConfigurationError with the path ``where``."""
        if name in KNOWN_PLUGINS:
            self._installed.check_not_taken(name, where)
            return KNOWN_PLUGINS[name]
        return self._third_party(name, where).points

    def make_arguments(self, name: str, document: Mapping[str, Any], path: str) -> Any:
        """The arguments of a plugin with defaults. Raises ConfigurationError with a path below ``path``."""
        if name in KNOWN_PLUGINS:
            return make_arguments(name, document, path)
        return self._third_party(name, path).make_arguments(document, path)

    def _third_party(self, name: str, where: str) -> ThirdPartyPlugin:
        if name not in self._installed.names:
            known = ", ".join((*KNOWN_PLUGINS, *self._installed.names))
            raise ConfigurationError(where, name, f"no such plugin; there are {known}")
        return self._installed.load(name, where)
