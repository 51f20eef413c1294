"""What the checks of the SLO ConfigMap and of nodes know of the cluster, kept by informers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordinator.api.kinds import CONFIG_MAPS, NODES
from koordinator.api.meta import ObjectMeta
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.options import Options


class KnownNodes:
    """All nodes, as far as selectors can tell them apart."""

    def __init__(self, informers: InformerSet) -> None:
        self._nodes = informers.informer(NODES)

    def metadata(self) -> Iterable[ObjectMeta]:
        """In the order of their names, so that the same node is the example every time."""
        return (node.metadata for node in sorted(self._nodes.list(), key=lambda node: node.metadata.name))


class KnownSLOConfiguration:
    """The SLO ConfigMap as it is stored."""

    def __init__(self, informers: InformerSet, options: Options) -> None:
        self._key = f"{options.config_namespace}/{options.slo_config_name}"
        self._config_maps = informers.informer(
            CONFIG_MAPS, namespace=options.config_namespace, field_selector=f"metadata.name={options.slo_config_name}"
        )

    def data(self) -> Mapping[str, str] | None:
        """None while there is no such ConfigMap."""
        found = self._config_maps.get(self._key)
        return found.data if found is not None else None
