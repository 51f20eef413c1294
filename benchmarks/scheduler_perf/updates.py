"""Updates of objects from templates, at a rate."""

from __future__ import annotations

from benchmarks.scheduler_perf.background import Sleep
from benchmarks.scheduler_perf.kind_table import kind_of
from benchmarks.scheduler_perf.operations import UpdateAny
from benchmarks.scheduler_perf.templates import Template
from koordinator.kube.interface import Client


async def update_any(client: Client, operation: UpdateAny, template: Template, sleep: Sleep) -> None:
    """Replace the objects that the template names, then their status, whatever their version is."""
    count = 1 if operation.count is None else operation.count
    subresource = "/".join(operation.subresources)
    for index in range(count):
        if operation.update_per_second:
            await sleep(1 / operation.update_per_second)
        document = template.document(index, count)
        kind, name = kind_of(document), document["metadata"]["name"]
        await client.update(kind, document, name, operation.namespace, subresource=subresource)
        await client.update(kind, document, name, operation.namespace, subresource="status")
