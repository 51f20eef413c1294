from __future__ import annotations

import pytest

from koordinator.cluster.http.request import ResourcePath, parse_resource_path


@pytest.mark.parametrize(
    ("path", "parsed"),
    [
        ("/api/v1/pods", ("", "v1", "pods", None, "", "")),
        ("/api/v1/namespaces/a/pods/p", ("", "v1", "pods", "a", "p", "")),
        ("/api/v1/namespaces/a/pods/p/binding", ("", "v1", "pods", "a", "p", "binding")),
        ("/api/v1/namespaces/a", ("", "v1", "namespaces", None, "a", "")),
        ("/api/v1/namespaces/a/status", ("", "v1", "namespaces", None, "a", "status")),
        ("/api/v1/namespaces/a/finalize/", ("", "v1", "namespaces", None, "a", "finalize")),
        ("/apis/apps/v1/namespaces/a/deployments", ("apps", "v1", "deployments", "a", "", "")),
        ("/apis/g/v1/things/x/scale/deep", ("g", "v1", "things", None, "x", "scale/deep")),
    ],
)
def test_resource_paths(path: str, parsed: tuple[str, str, str, str | None, str, str]) -> None:
    assert parse_resource_path(path) == ResourcePath(*parsed)


@pytest.mark.parametrize(
    ("path", "parsed"),
    [
        ("/api/v1/watch/pods", ("", "v1", "pods", None, "")),
        ("/api/v1/watch/namespaces", ("", "v1", "namespaces", None, "")),
        ("/api/v1/watch/namespaces/a", ("", "v1", "namespaces", None, "a")),
        ("/apis/apps/v1/watch/namespaces/a/deployments/d", ("apps", "v1", "deployments", "a", "d")),
    ],
)
def test_watch_paths(path: str, parsed: tuple[str, str, str, str | None, str]) -> None:
    assert parse_resource_path(path) == ResourcePath(*parsed, subresource="", watch=True)


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/api/v1/pods//x"])
def test_other_paths(path: str) -> None:
    assert parse_resource_path(path) is None
