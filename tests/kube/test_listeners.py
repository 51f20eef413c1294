"""No program opens a port but by the one server that limits what clients may take up."""

from __future__ import annotations

import ast
from pathlib import Path

import koordinator

SOURCE = Path(koordinator.__file__).parent
PORTS = {
    "TCPSite",
    "SockSite",
    "run_app",
    "create_server",
    "start_server",
    "HTTPServer",
    "ThreadingHTTPServer",
    "listen",
}
ALLOWED = {
    ("kube/http_server.py", "listen"),  # the one server
    ("cluster/server.py", "listen"),  # its socket is bound before the store is opened
    ("kube/serving.py", "listen"),  # by ``kube.http_server.listen``
    ("manager/webhook/server.py", "listen"),
    ("cli/ports.py", "listen"),  # to see whether a port is free
    ("runtime_proxy/server.py", "listen"),  # a unix socket that only root may use
    ("runtime_proxy/docker_server.py", "listen"),
    # Called when a configuration has changed.
    ("manager/node_resource/controller.py", "listen"),
    ("manager/node_policy/controller.py", "listen"),
}


def opened(path: Path) -> set[str]:
    """The names of what a module calls, of those that open a port."""
    functions = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = {function.attr for function in functions if isinstance(function, ast.Attribute)}
    return (names | {function.id for function in functions if isinstance(function, ast.Name)}) & PORTS


def test_only_the_one_server_opens_ports() -> None:
    found = {(str(path.relative_to(SOURCE)), name) for path in sorted(SOURCE.rglob("*.py")) for name in opened(path)}
    assert found == ALLOWED
