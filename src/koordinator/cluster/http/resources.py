"""From an HTTP request on a resource path to a verb and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from aiohttp import web

from koordinator.cluster.access.authorizer import Authorizer
from koordinator.cluster.errors import ApiError, method_not_allowed, not_found, unknown_path
from koordinator.cluster.http.access import USER, check_allowed, creation
from koordinator.cluster.http.event_lines import EventLines
from koordinator.cluster.http.negotiation import REPRESENTATION, REVIEWS, Representation, negotiate, offer, represent
from koordinator.cluster.http.request import (
    ResourcePath,
    check_fields,
    deletion_options,
    read_document,
    read_options,
    write_options,
)
from koordinator.cluster.http.response import (
    Renderer,
    deleted_details,
    document_response,
    event_line,
    json_response,
    list_response,
    renderer,
    stream_watch,
    success,
)
from koordinator.cluster.http.reviews import Reviews
from koordinator.cluster.patch import is_apply_patch
from koordinator.cluster.resource import VIEWS, Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.scale import SCALE
from koordinator.cluster.verbs.apply import apply
from koordinator.cluster.verbs.computed import get_computed, list_computed
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.delete import delete, delete_collection
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions, WriteOptions
from koordinator.cluster.verbs.read import ObjectList, get, list_objects
from koordinator.cluster.verbs.subresources import (
    ACTION_KINDS,
    BINDING,
    CREATED_SUBRESOURCES,
    bind_named,
    get_scale,
    patch_scale,
    update_scale,
)
from koordinator.cluster.verbs.target import Target, shown, shown_one
from koordinator.cluster.verbs.unavailable import explain_unavailable, has_empty_log
from koordinator.cluster.verbs.update import patch, update
from koordinator.cluster.verbs.watch import WatchEvent, WatchSession

PendingResponse = Awaitable[web.StreamResponse]
_WATCH_OFF = ("false", "0")
"""Values of the query parameter that request no watch; all others do."""


class ResourceHandler:
    """One method per combination of HTTP method and path shape."""

    def __init__(self, environment: Environment, reviews: Reviews, authorizer: Authorizer) -> None:
        self._environment = environment
        self._reviews = reviews
        self._authorizer = authorizer
        self._lines = EventLines()
        self._on_collection: dict[str, Callable[[web.BaseRequest, Target], PendingResponse]] = {
            "GET": self._list,
            "POST": self._create,
            "DELETE": self._delete_collection,
        }
        self._on_object: dict[str, Callable[[web.BaseRequest, Target], PendingResponse]] = {
            "GET": self._get,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }

    async def handle(self, request: web.BaseRequest, path: ResourcePath) -> web.StreamResponse:
        """Raises ApiError."""
        resource = self._environment.registry.served.get((path.group, path.version, path.plural))
        if resource is None or (path.namespace and not resource.namespaced):
            raise unknown_path()
        target = Target(resource, path.namespace, path.name, path.subresource)
        if "watch" not in resource.verbs:
            if wants_watch(request, path):
                raise method_not_allowed()
            return await self._not_stored(request, target)
        if path.subresource and path.subresource not in VIEWS:
            return await self._act(request, target)
        if path.subresource and path.subresource not in resource.subresources:
            raise unknown_path()
        if path.name and resource.namespaced and not path.namespace:
            raise unknown_path()
        methods = self._on_object if path.name and not path.watch else self._on_collection
        watches = wants_watch(request, path)
        method = self._watch if watches else methods.get(request.method)
        if method is None or not _is_allowed(request.method, resource, path):
            raise method_not_allowed()
        # Before anything is stored: a response that cannot be made must not hide a write that was.
        _represent(request, resource, streams=watches)
        return await method(request, target)

    async def _get(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if _is_scale(target):
            return await self._object(request, target, await get_scale(self._environment, target))
        stored = get(self._environment, target, ListOptions.parse(request.query))
        return await self._object(request, target, stored)

    async def _list(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options = ListOptions.parse(request.query)
        render = self._renderer(request, target)
        found = list_objects(self._environment, target, options)
        return list_response(render.many(await _converted(target, found)))

    async def _watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options = ListOptions.parse(request.query)
        agreed = request[REPRESENTATION]
        line = partial(event_line, self._renderer(request, target))
        session = WatchSession(self._environment, target, options)
        # A table names its columns once in each stream, and ages by the time of its request.
        is_shared = agreed.encoding == "json" and agreed.form != "table"
        with self._lines.watcher(agreed.form, target.resource) if is_shared else nullcontext() as shared:
            if shared is not None:
                return await stream_watch(request, session, agreed, partial(shared.join, line))
            return await stream_watch(request, session, agreed, partial(_frames, agreed, line))

    async def _create(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        obj = await read_document(request, target.resource.kind, target.resource)
        with self._writing(request) as options:
            options.warnings.extend(await check_fields(target.resource, obj, request, options.field_validation))
            stored = await create(self._environment, target, obj, options)
        return await self._object(request, target, stored, 201, options.warnings)

    async def _update(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        shown = _shown(target)
        obj = await read_document(request, shown.kind, shown)
        with self._writing(request) as options:
            options.warnings.extend(await check_fields(shown, obj, request, options.field_validation))
            write = update_scale if _is_scale(target) else update
            stored = await write(self._environment, target, obj, options)
        return await self._object(request, target, stored, 200, options.warnings)

    async def _patch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        content_type, body = request.headers.get("Content-Type", ""), await request.read()
        created = False
        with self._writing(request) as options:
            if _is_scale(target):
                stored = await patch_scale(self._environment, target, content_type, body, options)
            elif is_apply_patch(content_type):
                may_create = partial(check_allowed, self._authorizer, request[USER], creation(target))
                stored, created = await apply(self._environment, target, body, options, check_creation=may_create)
            else:
                stored = await patch(self._environment, target, content_type, body, options)
        return await self._object(request, target, stored, 201 if created else 200, options.warnings)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        chosen = DeleteOptions.parse(await read_options(request), request.query)
        with self._writing(request, chosen) as options:
            deletion = await delete(self._environment, target, chosen, options)
        if deletion.gone and not target.resource.returns_deleted:
            return success(deleted_details(target.resource, deletion.stored), warnings=options.warnings)
        return await self._object(request, target, deletion.stored, 200, options.warnings)

    async def _delete_collection(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        chosen = DeleteOptions.parse(await read_options(request), request.query)
        selection = ListOptions.parse(request.query)
        with self._writing(request, chosen) as options:
            deleted = await delete_collection(self._environment, target, selection, chosen, options)
        return list_response(self._renderer(request, target).many(await _converted(target, deleted)), options.warnings)

    async def _act(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        resource = target.resource
        action = CREATED_SUBRESOURCES.get((resource.group, resource.plural, target.subresource))
        if action is None or target.subresource not in resource.subresources:
            if request.method == "GET" and has_empty_log(self._environment, target):
                return web.Response(text="")
            raise explain_unavailable(self._environment, target) or unknown_path()
        if request.method != "POST" or target.namespace is None:
            raise method_not_allowed()
        represent(request, REVIEWS)
        kind = ACTION_KINDS.get(target.subresource)
        body = await read_document(request, kind.kind if kind is not None else target.subresource.capitalize(), kind)
        with self._writing(request) as options:
            if kind is not None:
                options.warnings.extend(await check_fields(kind, body, request, options.field_validation))
            made = await action(self._environment, target, body, options)
        if made is not None:
            return document_response(made, 201)
        return success(status=201, warnings=options.warnings)

    async def _not_stored(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Of kinds that are reviews, or computed for each request."""
        if target.resource is BINDING:
            return await self._bind(request, target)
        if "get" not in target.resource.verbs:
            return await self._review(request, target)
        options = ListOptions.parse(request.query)
        if request.method != "GET":
            raise method_not_allowed()
        _represent(request, target.resource)
        if target.name:
            return await self._object(request, target, get_computed(self._environment, target))
        return list_response(self._renderer(request, target).many(list_computed(self._environment, target, options)))

    async def _bind(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """POST of a Binding to the collection, which names the pod itself: the form before ``pods/NAME/binding``."""
        if target.name or target.namespace is None:
            raise unknown_path()
        if request.method != "POST":
            raise method_not_allowed()
        represent(request, REVIEWS)
        body = await read_document(request, BINDING.kind)
        with self._writing(request) as options:
            await bind_named(self._environment, target, body, options)
        return success(status=201, warnings=options.warnings)

    async def _review(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if request.method != "POST" or target.subresource:
            raise method_not_allowed()
        if target.name:
            raise not_found(target.resource, target.name)
        represent(request, REVIEWS)
        review = await read_document(request, target.resource.kind, target.resource)
        return document_response(self._reviews.review(request[USER], target, review), 201)

    @contextmanager
    def _writing(self, request: web.BaseRequest, chosen: DeleteOptions | None = None) -> Iterator[WriteOptions]:
        """The options of a write, whose warnings go out with a refusal, too."""
        now, query, user = self._environment.clock.monotonic(), request.query, request[USER]
        if chosen is not None:
            options = deletion_options(query, now, user, dry_run=chosen.dry_run)
        else:
            options = write_options(request.method, query, request.headers, now, user)
        try:
            yield options
        except ApiError as error:
            error.warnings = options.warnings
            raise

    def _renderer(self, request: web.BaseRequest, target: Target) -> Renderer:
        include = request.query.get("includeObject", "")
        return renderer(request[REPRESENTATION].form, _shown(target), include, self._environment.clock.now())

    async def _object(
        self,
        request: web.BaseRequest,
        target: Target,
        stored: Stored,
        status: int = 200,
        warnings: list[str] | None = None,
    ) -> web.StreamResponse:
        stored = await shown_one(_shown(target), stored)
        return json_response(self._renderer(request, target).one(stored), status, warnings or ())


def _represent(request: web.BaseRequest, resource: Resource, *, streams: bool = False) -> None:
    """Agree on a form of the objects, and keep it in the request. Raises ApiError 406 when there is none."""
    offered = offer(resource.api_version, resource.kind, streams=streams, custom=resource.schema is not None)
    request[REPRESENTATION] = negotiate(request.headers.get("Accept", ""), offered)


async def _converted(target: Target, found: ObjectList) -> ObjectList:
    return replace(found, items=await shown(target.resource, found.items)) if target.resource.conversion else found


def _frames(agreed: Representation, line: Callable[[WatchEvent], bytes], batch: Sequence[WatchEvent]) -> bytes:
    return b"".join([agreed.frame(line(event)) for event in batch])


def _is_allowed(method: str, resource: Resource, path: ResourcePath) -> bool:
    """Whether a method that makes sense in general does so here."""
    if path.watch:
        return method == "GET" and not path.subresource
    if path.subresource == "finalize":
        return method == "PUT"
    if method == "POST":
        return bool(path.namespace) or not resource.namespaced
    if method == "DELETE":
        return not path.subresource if path.name else "deletecollection" in resource.verbs
    return True


def _is_scale(target: Target) -> bool:
    return target.subresource == "scale"


def _shown(target: Target) -> Resource:
    """The form of request and response bodies."""
    return SCALE if _is_scale(target) else target.resource


def wants_watch(request: web.BaseRequest, path: ResourcePath) -> bool:
    """Checked for every request. On an object the parameter has no effect, as on the real server."""
    if request.method != "GET":
        return False
    if path.watch or path.name or "watch" not in request.rel_url.raw_query_string:
        return path.watch
    value = request.query.get("watch")
    return value is not None and value.lower() not in _WATCH_OFF
