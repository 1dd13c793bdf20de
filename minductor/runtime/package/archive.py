"""The file of a package: a zip of uncompressed entries, with a seal over every byte.

Takes names and bytes; or the path of such a file. Gives the file; or its entries as views of mapped memory, which begin
at multiples of ALIGNMENT. Refuses a file without a valid seal, and entries that are compressed, duplicate, outside of
the file or named like a path (PackageRefused). Nothing is read before the seal has been checked.

Any zip tool can list and extract the file. The seal is the zip's comment: a SHA-256 of all bytes before the digest. It
detects damage, but anybody can make one, so a package needs as much trust as a program.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     write_archive(Path(folder) / "a.zip", {"text.json": [b"{}"], "data.bin": [b"abc", b"d"]})
...     archive = open_archive(Path(folder) / "a.zip")
>>> list(archive.entries), bytes(archive.entries["data.bin"])
(['text.json', 'data.bin'], b'abcd')
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import secrets
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from minductor.core.errors import NotExportable, PackageMissing, PackageRefused

Bytes = bytes | memoryview

ALIGNMENT = 64  # of an entry's first byte in the file, and so in memory: a cache line, and the widest vector
MOST_ENTRIES = 4096
_MARK = b"minductor package 1 "
_SEAL = len(_MARK) + 64
_NAME = re.compile(r"[A-Za-z0-9_]+(\.[a-z]+)+")
_LOCAL = struct.Struct("<4s5H3I2H")  # a local header of the zip format, up to its name
_LARGE = 1 << 30  # beyond it a header has another field, of 20 bytes, with the size
_PADDING = 0xD935  # the number of the extra field that fills a header up, as Android's zipalign does


@dataclass(frozen=True, slots=True)
class Archive:
    """The entries of a file with a valid seal, by name, in the file's order. Writing to them never changes the file."""

    path: Path
    entries: Mapping[str, memoryview]


def check_place(path: Path) -> None:
    """Refuses a path at which no file can be written, as far as that can be known beforehand."""
    if not path.parent.is_dir():
        raise NotExportable("this program", f"{path.parent} is no folder", hint="Make the folder of the package first.")
    if path.is_dir():
        raise NotExportable("this program", f"{path} is a folder", hint="Name a file: a package is a single file.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise NotExportable("this program", f"nothing can be written into {path.parent}", hint="Name another folder.")


def write_archive(path: Path, entries: Mapping[str, Sequence[Bytes]]) -> None:
    """Writes the pieces of each entry to a temporary file and renames it, so that nobody sees half a file."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        file = beside.open("x+b")  # with the process's default permissions
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}"
        raise NotExportable("this program", why, hint="Name another file.") from error
    try:
        with file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as zipped:
                for entry, pieces in entries.items():
                    _write_entry(zipped, file.tell(), entry, pieces)
                zipped.comment = _MARK + b"0" * 64
            file.seek(-64, os.SEEK_END)
            end = file.tell()
            file.seek(0)
            digest = hashlib.sha256()
            while end > 0 and (piece := file.read(min(end, 1 << 20))):
                digest.update(piece)
                end -= len(piece)
            file.write(digest.hexdigest().encode())
        beside.replace(path)
    except BaseException:
        beside.unlink()
        raise


def _write_entry(zipped: zipfile.ZipFile, start: int, name: str, pieces: Sequence[Bytes]) -> None:
    info = zipfile.ZipInfo(name)  # of 1980: equal contents are equal files
    info.file_size = sum(len(piece) for piece in pieces)
    is_large = info.file_size > _LARGE
    fill = -(start + _LOCAL.size + len(name) + 20 * is_large + 4) % ALIGNMENT
    info.extra = struct.pack("<HH", _PADDING, fill) + bytes(fill)
    with zipped.open(info, "w", force_zip64=is_large) as file:
        for piece in pieces:
            file.write(piece)


def open_archive(path: Path) -> Archive:
    """Maps the file and checks its seal and its form."""
    try:
        if not path.exists():
            raise PackageMissing(str(path))
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no ordinary file"
            raise PackageRefused(str(path), f"it is {what}", hint="name the file that minductor.export wrote")
        with path.open("rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
            _check_seal(path, mapped)
            return Archive(path, dict(_entries(path, file, mapped)))
    except (zipfile.BadZipFile, struct.error, NotImplementedError, ValueError, OSError) as error:
        if isinstance(error, PackageMissing):
            raise
        if isinstance(error, PermissionError):
            raise PackageRefused(str(path), "this process may not read it", hint="change its mode") from error
        raise PackageRefused(str(path), f"it is not a valid zip file: {error}") from None


def _check_seal(path: Path, mapped: memoryview) -> None:
    if len(mapped) < _SEAL or mapped[-_SEAL:-64] != _MARK:
        raise PackageRefused(str(path), "it does not end with the seal of a package: another file, or cut short")
    if hashlib.sha256(mapped[:-64]).hexdigest().encode() != mapped[-64:]:
        raise PackageRefused(str(path), "its contents are not those that were sealed: the file is damaged or altered")


def _entries(path: Path, file: BinaryIO, mapped: memoryview) -> Iterator[tuple[str, memoryview]]:
    seen: set[str] = set()
    with zipfile.ZipFile(file) as zipped:
        found = zipped.infolist()
    if len(found) > MOST_ENTRIES:
        raise PackageRefused(str(path), f"it has {len(found)} entries")
    for info in found:
        if not _NAME.fullmatch(info.filename) or info.filename in seen:
            raise PackageRefused(
                str(path), f"the name of an entry is doubled, or no plain name: {info.filename[:80]!r}"
            )
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
            raise PackageRefused(str(path), f"{info.filename} is compressed or encrypted")
        seen.add(info.filename)
        signature, *_, name, extra = _LOCAL.unpack_from(mapped, info.header_offset)
        start = info.header_offset + _LOCAL.size + name + extra
        if signature != b"PK\3\4" or start + info.file_size > len(mapped) or start % ALIGNMENT:
            raise PackageRefused(str(path), f"{info.filename} is outside of the file")
        yield info.filename, mapped[start : start + info.file_size]
