"""What an image has of its base: the interpreter, its standard library, and the shared libraries that something loads.

No shell, no package manager, nothing that is not used. Debian's records of the packages that the libraries are from
come along, where scanners look for them in images without dpkg, and so do the licences.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")
_LEFT_OUT: Final = re.compile(
    r"(__pycache__|curses|dbm|ensurepip|idlelib|lib2to3|pydoc_data|site-packages|dist-packages|tests?|tkinter"
    r"|turtledemo|venv)$"
)
"""Tests, graphical programs, installers, and modules whose libraries nothing here loads: terminals, old databases."""
_LEFT_OUT_EXTENSIONS: Final = re.compile(
    r"(_crypt|_curses|_curses_panel|_ctypes_test|_dbm|_gdbm|_test\w*|_tkinter|nis|ossaudiodev|readline|xx\w*)\."
)
_STATIC: Final = re.compile(r"config-\d")
"""The folder with the static library of the interpreter."""
_COPIED: Final = (
    # What a container runtime looks for to know the distribution: libraries of drivers are put into its folders.
    "etc/debian_version",
    "etc/os-release",
    "usr/lib/os-release",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d",
    "etc/ssl/certs/ca-certificates.crt",
    "etc/host.conf",
    "etc/nsswitch.conf",
    "usr/share/zoneinfo",
)
_USERS: Final = {
    "etc/passwd": "root:x:0:0::/root:/sbin/nologin\nkoordinator:x:65532:65532::/nonexistent:/sbin/nologin\n",
    "etc/group": "root:x:0:\nkoordinator:x:65532:\n",
}
_FOLDERS: Final = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "var/log", "var/tmp")


def write_system(root: Path, extensions: Iterable[Path]) -> list[str]:
    """Write the files below ``root``. ``extensions`` are shared objects of installed packages, which load more
    libraries. Returns Debian's packages that something is from."""
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("tmp", "var/tmp"):
        (root / folder).chmod(0o1777)
    (root / "var/run").symlink_to("/run")
    _merged_folders(root)
    for copied in _COPIED:
        if (_ROOT / copied).exists():
            _copy(_ROOT / copied, root)
    for users, text in _USERS.items():
        (root / users).write_text(text)
    interpreter = _interpreter(root)
    library = _standard_library(root)
    loaded = list(_libraries([interpreter, *library.rglob("*.so"), *extensions]))
    for path in loaded:
        _copy(path, root)
    standard = Path(sysconfig.get_path("stdlib"))
    packages = _packages([interpreter, standard / "os.py", *standard.glob("lib-dynload/_json.*"), *loaded])
    for package in (*packages, "ca-certificates", "tzdata"):
        _record(root, package)
    return packages


def _merged_folders(root: Path) -> None:
    """/lib and its like, which are links into /usr."""
    for name in ("bin", "lib", "lib64", "sbin"):
        link = _ROOT / name
        if link.is_symlink():
            target = link.readlink()
            (root / target).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(target)


def _copy(path: Path, root: Path) -> None:
    """A file or a folder at its place below ``root``, with what it is a link to. Links among its folders are followed,
    so that nothing lies at a place which is a link in the image."""
    place = root / path.parent.resolve().relative_to(_ROOT) / path.name
    if place.exists() or place.is_symlink():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        place.symlink_to(path.readlink())
        _copy(path.parent.resolve() / path.readlink(), root)
    elif path.is_dir():
        shutil.copytree(path, place, symlinks=True)
    else:
        shutil.copy2(path, place)


def _interpreter(root: Path) -> Path:
    """The one of the base, which environments refer to."""
    found = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    for name in {found.name, "python3", "python"}:
        if (link := Path(sys.base_prefix, "bin", name)).exists():
            _copy(link, root)
    # Where the base has a link of its own to it.
    if (link := Path("/usr/local/bin/python")).exists():
        _copy(link, root)
    return found.resolve()


def _standard_library(root: Path) -> Path:
    """Copied without what programs do not use, and compiled so that nothing has to be looked at when it is imported."""
    source = Path(sysconfig.get_path("stdlib")).resolve()
    place = root / source.relative_to(_ROOT)

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {
            name
            for name in names
            if _LEFT_OUT.match(name)
            or _LEFT_OUT_EXTENSIONS.match(name)
            or (folder == str(source) and _STATIC.match(name))
        }

    shutil.copytree(source, place, ignore=left_out, symlinks=False, ignore_dangling_symlinks=True)
    compile_modules(place, root)
    return place


def compile_modules(folder: Path, root: Path | None = None) -> None:
    """Byte code that names the files as they lie in the image; the same for the same sources."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(folder)]
    if root is not None:
        command += ["-s", str(root), "-p", "/"]
    subprocess.run(command, check=True, env={"PYTHONHASHSEED": "0"})


def _libraries(objects: Iterable[Path]) -> Iterator[Path]:
    """What these load, in turn, but for what lies beside them in their own package."""
    found: set[Path] = set()
    for path in objects:
        listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
        if missing := re.findall(r"(\S+) => not found", listed):
            raise FileNotFoundError(f"{path} loads {', '.join(missing)}, which the base lacks")
        found.update(Path(each) for each in re.findall(r"(?:=> |^\t)(/\S+) \(0x", listed, re.MULTILINE))
    yield from sorted(each for each in found if "site-packages" not in each.parts)


def _packages(files: Iterable[Path]) -> list[str]:
    """Debian's packages of files, each once; none for what the base has built itself, such as its Python."""
    paths: set[str] = set()
    for file in files:
        # dpkg knows a file by the path from before /lib became a link.
        paths |= {str(file), str(file.resolve()), str(file).removeprefix("/usr"), f"/usr{file}"}
    listed = subprocess.run(["dpkg", "--search", *sorted(paths)], capture_output=True, text=True, check=False).stdout
    return sorted({line.partition(":")[0] for line in listed.splitlines() if not line.startswith("diversion")})


def _record(root: Path, package: str) -> None:
    """Its part of dpkg's records, and its licence."""
    text = subprocess.run(["dpkg-query", "--status", package], capture_output=True, text=True, check=True).stdout
    records = root / "var/lib/dpkg/status.d"
    records.mkdir(parents=True, exist_ok=True)
    (records / package).write_text(text)
    _copy(Path("/usr/share/doc", package, "copyright"), root)
