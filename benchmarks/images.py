"""How large images are, and what their programs use until they are ready: ``python -m benchmarks.images ARCHIVE…``.

An archive is what `docker save`, `podman save` or `buildah push IMAGE docker-archive:FILE` writes, and has the name of
the image. Each image is unpacked, and its program is started in there with its user and its environment, on an embedded
API server, until /readyz answers. One JSON line is printed for each. As root, for chroot.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

from benchmarks.process_usage import cpu_clock, usage_of

_SECONDS: Final = 120.0
_COMPRESSION: Final = 6
"""That with which engines push layers."""
_PORT: Final = 19317
_KUBECONFIG: Final = "/tmp/kubeconfig"
_CONFIGURATION: Final = "/tmp/configuration.yaml"
_SCHEDULER: Final = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
_DESCHEDULER: Final = f"""\
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
healthzBindAddress: 127.0.0.1:{_PORT}
metricsBindAddress: 127.0.0.1:{_PORT}
"""
_FILES: Final = {
    "koord-scheduler": {_CONFIGURATION: _SCHEDULER},
    "koord-descheduler": {_CONFIGURATION: _DESCHEDULER},
    "koordlet": {"/host-cgroup/cgroup.controllers": "cpu memory\n", "/host-cgroup/kubepods/cgroup.procs": ""},
    "koord-device-daemon": {"/var/run/koordlet/xpu-device-infos/README": ""},
}
"""Its configuration, or something in the folders of the node that its pod has."""
_ARGUMENTS: Final = {
    "koord-scheduler": (f"--config={_CONFIGURATION}", f"--kubeconfig={_KUBECONFIG}", f"--port={_PORT}"),
    "koord-descheduler": (f"--config={_CONFIGURATION}", f"--kubeconfig={_KUBECONFIG}"),
    "koord-manager": (
        f"--kubeconfig={_KUBECONFIG}",
        f"--health-probe-addr=127.0.0.1:{_PORT}",
        "--metrics-addr=127.0.0.1:0",
        "--feature-gates=WebhookFramework=false",
    ),
    "koordlet": (f"--kubeconfig={_KUBECONFIG}", f"--addr=127.0.0.1:{_PORT}"),
    "koord-device-daemon": (f"--metrics-addr=127.0.0.1:{_PORT}", "--host-root="),
}
"""With which a program gets ready without a node of its own."""


@dataclass(frozen=True, slots=True)
class Size:
    """In bytes: as it lies on a node, and as it is pulled."""

    unpacked: int
    compressed: int


@dataclass(frozen=True, slots=True)
class Start:
    """Until the program is ready: elapsed seconds, seconds of CPU, and the most memory, in bytes."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def layers(archive: Path) -> Iterator[bytes]:
    """The layers of the one image of an archive, from the lowest on, as tar files."""
    with tarfile.open(archive) as files:
        (image,) = json.loads(_content(files, "manifest.json"))
        for name in image["Layers"]:
            content = _content(files, name)
            yield gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def configuration(archive: Path) -> dict[str, Any]:
    """What is said of how it is run: User, Env, Entrypoint."""
    with tarfile.open(archive) as files:
        (image,) = json.loads(_content(files, "manifest.json"))
        settings: dict[str, Any] = json.loads(_content(files, image["Config"]))["config"]
        return settings


def _content(files: tarfile.TarFile, name: str) -> bytes:
    file = files.extractfile(name)
    if file is None:
        raise FileNotFoundError(name)
    return file.read()


def size(archive: Path) -> Size:
    """Of an image, with all layers."""
    unpacked = compressed = 0
    for layer in layers(archive):
        with tarfile.open(fileobj=io.BytesIO(layer)) as files:
            unpacked += sum(member.size for member in files)
        compressed += len(gzip.compress(layer, _COMPRESSION))
    return Size(unpacked, compressed)


def unpack(archive: Path, root: Path) -> None:
    """Lay the layers over each other. None of these images removes what a lower layer has."""
    for layer in layers(archive):
        subprocess.run(["tar", "--extract", "--directory", str(root)], input=layer, check=True)


@contextmanager
def _api_server(folder: Path) -> Iterator[Path]:
    """An embedded one; its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "koordinator.cluster", f"--data={folder / 'data'}", f"--kubeconfig={kubeconfig}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            if process.stderr is not None:
                process.stderr.readline()
            yield kubeconfig
        finally:
            process.terminate()


def start(root: Path, settings: dict[str, Any], name: str, kubeconfig: Path) -> Start:
    """Start the program of an unpacked image, and end it when it is ready. TimeoutError if it does not get ready."""
    given = root / _KUBECONFIG.removeprefix("/")
    shutil.copyfile(kubeconfig, given)
    for path, text in _FILES.get(name, {}).items():
        # Not by the link /var/run, which leads out of the folder.
        place = root / path.removeprefix("/").replace("var/run/", "run/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    user, _, group = settings["User"].partition(":")
    os.chown(given, int(user), int(group))
    given.chmod(0o600)
    environment = dict(each.split("=", 1) for each in settings["Env"]) | {"NODE_NAME": "measured", "HOME": "/tmp"}
    command = ["chroot", f"--userspec={settings['User']}", str(root), *settings["Entrypoint"], *_ARGUMENTS[name]]
    started = time.monotonic()
    with subprocess.Popen(command, env=environment | {"PATH": f"{environment['PATH']}:/usr/sbin"}) as process:
        try:
            _until_ready(process, started)
            return Start(time.monotonic() - started, cpu_clock(process.pid), usage_of(process.pid).peak_bytes)
        finally:
            process.terminate()


def _until_ready(process: subprocess.Popen[bytes], started: float) -> None:
    opener = build_opener(ProxyHandler({}))
    while time.monotonic() - started < _SECONDS:
        if process.poll() is not None:
            raise ChildProcessError(f"{process.args!r}: exit status {process.returncode}")
        try:
            with opener.open(f"http://127.0.0.1:{_PORT}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.01)
    raise TimeoutError(f"{process.args!r} does not get ready")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of each archive, whose name without its suffix is that of the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", type=Path, nargs="+", metavar="ARCHIVE")
    for archive in parser.parse_args(arguments).archives:
        figures = {"image": archive.stem, **asdict(size(archive))}
        if archive.stem in _ARGUMENTS:
            with tempfile.TemporaryDirectory() as folder, _api_server(Path(folder)) as kubeconfig:
                root = Path(folder, "root")
                root.mkdir()
                unpack(archive, root)
                figures |= asdict(start(root, configuration(archive), archive.stem, kubeconfig))
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
