"""A file is whole, or as it was."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from sordino import files
from sordino.files import write_atomically


def test_text_and_bytes_replace_what_was_there(tmp_path):
    file = tmp_path / "a.txt"
    write_atomically(file, "naïve\n")
    assert file.read_bytes() == "naïve\n".encode()
    write_atomically(str(file), b"\x00\xff", durable=True)
    assert file.read_bytes() == b"\x00\xff"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_private_is_for_the_owner_alone_and_the_rest_follows_the_umask(tmp_path):
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "open", b"x")
        write_atomically(tmp_path / "secret", b"x", private=True)
        (tmp_path / "was-open").write_bytes(b"x")
        write_atomically(tmp_path / "was-open", b"x", private=True)
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"open": 0o644, "secret": 0o600, "was-open": 0o600}


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"old")
    with pytest.raises(TypeError):
        write_atomically(file, 7)  # type: ignore[arg-type]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "in the way").touch()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "folder", b"new")
    assert file.read_bytes() == b"old" and sorted(os.listdir(tmp_path)) == ["a", "folder"]


def test_a_link_in_the_place_of_the_draft_is_not_followed(tmp_path):
    """Someone who can write to the folder points every name of a draft elsewhere."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    folder = tmp_path / "run"
    folder.mkdir()
    used = next(files._numbers)
    for number in range(used, used + 20):
        os.symlink(victim, folder / f".a.{os.getpid()}-{number}")
    write_atomically(folder / "a", b"new")
    assert victim.read_bytes() == b"mine" and (folder / "a").read_bytes() == b"new"


def test_writers_side_by_side_never_mix(tmp_path):
    file = tmp_path / "a"
    contents = [bytes([letter]) * 200_000 for letter in range(8)]

    def write(content: bytes) -> None:
        for _ in range(20):
            write_atomically(file, content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    seen = set()
    while any(thread.is_alive() for thread in threads):
        if file.exists():
            seen.add(file.read_bytes())
    for thread in threads:
        thread.join()
    assert seen <= set(contents) and file.read_bytes() in contents and os.listdir(tmp_path) == ["a"]
