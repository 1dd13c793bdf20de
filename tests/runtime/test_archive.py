"""The file of a package: what was written is read where it lies, and every other file is refused."""

import hashlib
import os
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from minductor.core.errors import PackageRefused
from minductor.runtime.package.archive import ALIGNMENT, open_archive, write_archive

ENTRIES = {"manifest.json": b"{}", "empty.bin": b"", "constants.bin": bytes(range(256)) * 5}


def written(path: Path) -> Path:
    write_archive(path, {name: [data[:100], memoryview(data)[100:]] for name, data in ENTRIES.items()})
    return path


def sealed(path: Path) -> Path:
    """A zip file with the seal that a package has, whatever is in it."""
    data = path.read_bytes()
    end = data.rindex(b"PK\5\6")
    head = data[: end + 20] + struct.pack("<H", 84) + b"minductor package 1 "
    path.write_bytes(head + hashlib.sha256(head).hexdigest().encode())
    return path


def test_entries_come_back_aligned(tmp_path: Path) -> None:
    archive = open_archive(written(tmp_path / "a.zip"))
    assert {name: bytes(data) for name, data in archive.entries.items()} == ENTRIES
    start = (tmp_path / "a.zip").read_bytes().index(ENTRIES["constants.bin"])
    assert start % ALIGNMENT == 0


def test_equal_contents_are_equal_files_that_any_zip_tool_reads(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a.zip"), written(tmp_path / "b.zip")
    assert first.read_bytes() == second.read_bytes()
    assert subprocess.run([sys.executable, "-m", "zipfile", "-t", str(first)], check=True, capture_output=True).stdout
    assert [path.name for path in tmp_path.iterdir()] != [] and len(list(tmp_path.iterdir())) == 2


def test_writing_to_an_entry_leaves_the_file_alone(tmp_path: Path) -> None:
    archive = open_archive(written(tmp_path / "a.zip"))
    archive.entries["constants.bin"][0] = 77
    assert bytes(open_archive(archive.path).entries["constants.bin"]) == ENTRIES["constants.bin"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    before = written(tmp_path / "a.zip").read_bytes()
    with pytest.raises(TypeError):
        write_archive(tmp_path / "a.zip", {"manifest.json": ["text"]})  # pyright: ignore[reportArgumentType]
    assert (tmp_path / "a.zip").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_the_file_has_the_rights_that_the_process_gives(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = written(tmp_path / "a.zip")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("seed", range(3))
def test_every_bit_is_under_the_seal(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = written(tmp_path / "a.zip").read_bytes()
    for _ in range(50):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 1, 3))):
            broken[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (tmp_path / "b.zip").write_bytes(broken)
        if broken != data:
            with pytest.raises(PackageRefused, match="seal"):
                open_archive(tmp_path / "b.zip")
        (tmp_path / "b.zip").write_bytes(data[: chance.randrange(len(data))])
        with pytest.raises(PackageRefused, match="MD082"):
            open_archive(tmp_path / "b.zip")


Make = Callable[[zipfile.ZipFile], None]


def add(name: str, data: bytes = b"x" * 99, how: int = zipfile.ZIP_STORED) -> Make:
    def make(zipped: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo(name)
        info.compress_type = how
        info.extra = struct.pack("<HH", 0xD935, (fill := -(30 + len(name) + 4) % 64)) + bytes(fill)
        zipped.writestr(info, data)

    return make


def twice(zipped: zipfile.ZipFile) -> None:
    add("a.json")(zipped)
    with pytest.warns(UserWarning, match="Duplicate"):
        zipped.writestr("a.json", b"other")


HOSTILE: dict[str, tuple[Make, str]] = {
    "a path": (add("../a.so"), "no plain name"),
    "a root": (add("/etc/a.so"), "no plain name"),
    "a folder": (add("a/b.so"), "no plain name"),
    "a drive": (add("c:a.so"), "no plain name"),
    "a line": (add("a.so\n"), "no plain name"),
    "no ending": (add("a"), "no plain name"),
    "twice": (twice, "doubled"),
    "compressed": (add("a.bin", bytes(100_000), zipfile.ZIP_DEFLATED), "compressed or encrypted"),
    "many": (lambda zipped: [add(f"a{n}.so", b"")(zipped) for n in range(4097)] and None, "it has 4097 entries"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_archives_are_refused_though_sealed(tmp_path: Path, how: str) -> None:
    make, why = HOSTILE[how]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        make(zipped)
    with pytest.raises(PackageRefused, match=why):
        open_archive(sealed(tmp_path / "a.zip"))


@pytest.mark.parametrize(("at", "value"), [(20, 1 << 31), (24, 1 << 31), (42, 1 << 30), (42, 3)])
def test_sizes_and_places_outside_of_the_file_are_refused(tmp_path: Path, at: int, value: int) -> None:
    """`at`: the compressed size, the size, or the place of the entry, in its row of the central directory."""
    data = bytearray(written(tmp_path / "a.zip").read_bytes())
    row = data.index(b"PK\1\2")
    for where in {at, 44 - at if at < 42 else at}:  # both sizes, as they have to agree
        struct.pack_into("<I", data, row + where, value)
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(PackageRefused, match=r"is outside of the file|not a valid zip"):
        open_archive(sealed(tmp_path / "a.zip"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        zipped.writestr("manifest.json", "{}")
    (tmp_path / "empty.zip").touch()
    for name in ("a.zip", "empty.zip"):
        with pytest.raises(PackageRefused, match="MD082"):
            open_archive(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        open_archive(tmp_path / "missing.zip")
