"""DELETE of a collection: each object that the selectors match, one by one."""

from __future__ import annotations

from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.list import ObjectList, list_objects
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions, WriteOptions
from koordinator.cluster.verbs.target import Target


async def delete_collection(
    environment: Environment,
    target: Target,
    selection: ListOptions,
    options: DeleteOptions,
    request: WriteOptions | None = None,
) -> ObjectList:
    """Returns what was deleted, or marked for it. An object that goes meanwhile is no error."""
    found = list_objects(environment, target, selection)
    deleted = []
    for stored in found.items:
        namespace, _, name = stored.key.removeprefix(target.resource.storage_prefix()).rpartition("/")
        try:
            one = await delete(
                environment, Target(target.resource, namespace or None, name), options, request, of_collection=True
            )
        except ApiError as error:
            if error.code != 404:
                raise
        else:
            deleted.append(one.stored)
    return ObjectList(deleted, environment.storage.revision(), found.continue_token)
