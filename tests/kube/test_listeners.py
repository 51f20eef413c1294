"""No program opens a port or a socket but where what clients may take up is limited."""

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
    "create_unix_server",
    "start_unix_server",
    "HTTPServer",
    "ThreadingHTTPServer",
    "listen",
}
ALLOWED = {
    ("kube/accepted_connections.py", "listen"),  # of all servers
    ("base/accepting.py", "listen"),  # unix sockets, whose connections have the same limits
    ("cluster/server.py", "listen"),  # its socket is bound before the store is opened
    ("kube/serving.py", "listen"),  # by ``kube.accepted_connections.listen``
    ("manager/webhook/server.py", "listen"),
    ("cli/ports.py", "listen"),  # to see whether a port is free
    ("runtime_proxy/server.py", "listen"),  # by ``base.accepting``
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


def test_nobody_else_opens_ports_or_sockets() -> None:
    found = {(str(path.relative_to(SOURCE)), name) for path in sorted(SOURCE.rglob("*.py")) for name in opened(path)}
    assert found == ALLOWED
