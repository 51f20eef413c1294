"""critest of Kubernetes' cri-tools, with stand-ins for all images that it wants.

The stand-ins have what its cases look for: a web server that responds with 200, ``nginx.pid``, a program that runs as
root whoever starts it. The one image that it names by digest cannot be had.

usage: python -m tests.real.critest [--focus REGEX]    prints the table of docs/runtime-proxy.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, run
from xml.etree import ElementTree

from tests.real.container_images import File, Image, busybox_layer, compiled, layer_of, set_user_id
from tests.real.container_runtime import ProxiedRuntime, proxied_runtime
from tests.real.polling import until
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs
from tests.real.real_node import only_node
from tests.runtime_proxy.proxied import ALL_HOOKS

_REPOSITORY = Path(__file__).resolve().parents[2]
_TESTS = "gcr.io/k8s-staging-cri-tools/"
_E2E = "registry.k8s.io/e2e-test-images/"
_SEED = "1"
_WEB_SERVER = """#!/bin/sh
echo $$ > /var/run/nginx.pid
echo httpd is ready
trap 'exit 0' TERM QUIT
httpd -f -p "$2" -h /www &
wait
"""
_SHOW_USER = """
#include <stdio.h>
#include <unistd.h>
int main() { printf("Effective uid: %d\\n", geteuid()); return 0; }
"""
_PASSED, _SKIPPED = "passed", "skipped"
_WAYS = ("directly", "through the proxy", "with a hook server that answers all hooks")


def _images(folder: Path) -> list[Image]:
    """All that critest wants; ``folder`` is for what has to be compiled."""
    base = busybox_layer()
    web = layer_of(
        File("usr/sbin/nginx", _WEB_SERVER.encode(), 0o755),
        File("www/index.html", b"ok\n"),
        File("var/run/.keep", b""),
    )
    groups = layer_of(
        File("etc/passwd", b"root:x:0:0::/:/bin/sh\ndefault-user:x:1000:1000::/:/bin/sh\n"),
        File("etc/group", b"root:x:0:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"),
    )
    # The busybox of Debian has none.
    ipcs = layer_of(File("bin/ipcs", b"#!/bin/sh\ncat /proc/sysvipc/shm\n", 0o755))
    show_user = layer_of(set_user_id("nnp", compiled(_SHOW_USER, folder)))

    def web_server(name: str, port: int) -> Image:
        return Image((name,), (base, web), (("Cmd", ["/usr/sbin/nginx", "master process", str(port)]),))

    def small(tag: str, *more: str) -> Image:
        names = (tag, *more)
        return Image(tuple(_TESTS + name for name in names), (base,), (("Labels", {"name": tag}),))

    def of_user(name: str, user: str) -> Image:
        return Image((f"{_TESTS}test-image-{name}:latest",), (base,), (("User", user),))

    return [
        Image((f"{_E2E}busybox:1.29-2",), (base, ipcs), (("Cmd", ["sh"]),)),
        Image(("registry.k8s.io/pause:3.9", "k8s.gcr.io/pause:3.9"), (base,), (("Labels", {"name": "pause"}),)),
        web_server(f"{_E2E}nginx:1.14-2", 80),
        web_server(f"{_E2E}httpd:2.4.39-4", 80),
        web_server(f"{_TESTS}hostnet-nginx-amd64:latest", 12003),
        Image((f"{_E2E}nonewprivs:1.3",), (base, show_user), (("Cmd", ["/nnp"]),)),
        Image((f"{_TESTS}test-image-predefined-group:latest",), (base, groups), (("User", "1000"),)),
        of_user("user-uid", "1002"),
        of_user("user-username", "www-data"),
        of_user("user-uid-group", "1003:users"),
        of_user("user-username-group", "www-data:www-data"),
        *(small(f"test-image-{number}:latest") for number in (1, 2, 3)),
        small("test-image-tags:1", "test-image-tags:2", "test-image-tags:3"),
        *(small(name) for name in ("test-image-latest:latest", "test-image-tag:test", "test-image-tag:all")),
    ]


def critest(programs: RealPrograms, socket: Path, focus: str = "", skip: str = "") -> dict[str, str]:
    """Run critest, or those cases whose names match ``focus`` and not ``skip``, on a socket; the status of each case by
    its name."""
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.xml"
        command = [
            str(programs.kubernetes / "critest"),
            *("-runtime-endpoint", f"unix://{socket}", "-image-endpoint", f"unix://{socket}"),
            *("-ginkgo.seed", _SEED, "-ginkgo.junit-report", str(report)),
            *(("-ginkgo.focus", focus) if focus else ()),
            # An empty pattern matches, and skips, every case.
            *(("-ginkgo.skip", skip) if skip else ()),
            # Some fail now and then without a proxy, too: the kernel's OOM event is lost in containerd.
            *("-ginkgo.flake-attempts", "3"),
        ]
        done = run(command, stdout=PIPE, stderr=STDOUT, text=True, timeout=1500, check=False)
        assert report.exists(), done.stdout[-3000:]
        cases = [case for case in ElementTree.parse(report).iter("testcase") if case.get("name", "").startswith("[It]")]
        return {case.get("name", ""): case.get("status", "") for case in cases}


@contextmanager
def critest_node(programs: RealPrograms) -> Iterator[ProxiedRuntime]:
    """A node that can pull what critest wants. It is the only one, since its streams use a port of kubelet."""
    with only_node(), proxied_runtime(programs, _images) as node:
        yield node


@contextmanager
def all_hooks(node: ProxiedRuntime) -> Iterator[Path]:
    """A hook server that changes containers and responds to all hooks is registered; the log of what it receives."""
    socket, log = node.folder / "all-hooks.sock", node.folder / "all-hooks.log"
    log.write_text("")
    command = [sys.executable, "-m", "tests.real.hook_server_process", str(socket), str(log)]
    with Popen(command, cwd=_REPOSITORY) as process:
        until(socket.exists, 30, "the hook server serves")
        node.proxy.register("all.json", socket, ALL_HOOKS)
        until(lambda: "hook server all.json:" in node.proxy.log.read_text(), 10, "it is registered")
        yield log
        (node.proxy.hooks / "all.json").unlink()
        process.terminate()


def main() -> int:
    """Run it three ways; 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--focus", default="", help="run only the cases that match")
    focus = parser.parse_args().focus
    programs = find_real_programs()
    if programs is None:
        sys.stderr.write(f"{HOW_TO_GET}\n")
        return 2
    with critest_node(programs) as node:
        results = [critest(programs, socket, focus) for socket in (node.runtime.socket, node.proxy.socket)]
        with all_hooks(node):
            results.append(critest(programs, node.proxy.socket, focus))
    sys.stdout.writelines(f"{line}\n" for line in _table(zip(_WAYS, results, strict=True)))
    different = {name for name in results[0] if len({result.get(name) for result in results}) > 1}
    for name in sorted(different):
        sys.stderr.write(f"differs: {name}: {[result.get(name) for result in results]}\n")
    for name in sorted(name for name, status in results[0].items() if status not in (_PASSED, _SKIPPED)):
        sys.stderr.write(f"fails directly: {name}\n")
    return 1 if different else 0


def _table(results: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    yield "| how | pass | fail | skip |"
    yield "|---|---|---|---|"
    for way, statuses in results:
        count = Counter(statuses.values())
        failed = len(statuses) - count[_PASSED] - count[_SKIPPED]
        yield f"| {way} | {count[_PASSED]} | {failed} | {count[_SKIPPED]} |"


if __name__ == "__main__":
    sys.exit(main())
