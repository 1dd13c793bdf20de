"""The machine code of a package for one kind of GPU: a binary for each launch that a call may need, in two entries.

Takes the default launches of a graph's kernels. Gives the launches to compile, and packs what they compile to. Later
takes the two entries, and gives the files of binaries as `gpu.py: Kernels` asks for them. Refuses (PackageRefused)
entries that do not belong together.

A graph that is compiled where it runs compiles some binaries when a call first needs them: for pointers that are not
aligned, for sizes without the factors of the example's, and for indices of 64 bits. A package has them all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from minductor.core.errors import PackageRefused
from minductor.ir.artefact.launch_metadata import LaunchMetadata
from minductor.runtime.launch.gpu import BINARIES, cubin_name
from minductor.runtime.package.archive import ALIGNMENT

TABLE, CODE = "binaries.json", "cubins.bin"  # the entries: a row for each binary, and the binaries one after another
Files = Mapping[str, bytes]  # of one call of `gpu.py: Gpu.build`
ROLES = ALIGNED, ANY = ("aligned", "any")  # whether a binary relies on pointers at multiples of 16 bytes


def needed_launches(launches: Iterable[LaunchMetadata]) -> Iterator[LaunchMetadata]:
    """The launches that calls may need for other sizes than those of the example, besides `launches` themselves."""
    for launch in launches:
        if launch.multiples:
            yield launch.of_any_sizes()
        if launch.greatest_index:
            yield launch.wide()


def any_pointer_launches(launches: Iterable[LaunchMetadata]) -> Iterator[LaunchMetadata]:
    """The launches that calls may need for pointers that are not aligned."""
    for launch in launches:
        yield launch.of_any_sizes() if launch.multiples else launch
        if launch.greatest_index:
            yield launch.wide()


def pack(made: Iterable[tuple[str, Files]]) -> dict[str, bytes]:
    """The entries, from pairs of a role and files."""
    rows: dict[str, dict[str, Any]] = {role: {} for role in ROLES}
    code = bytearray()
    for role, files in made:
        for name, facts in json.loads(files[BINARIES]).items():
            binary = files[cubin_name(name)]
            rows[role][name] = {**facts, "offset": len(code), "bytes": len(binary)}
            code += binary + bytes(ALIGNMENT - len(binary) % ALIGNMENT)
    return {TABLE: json.dumps(rows).encode(), CODE: bytes(code)}


def unpack(path: str, table: bytes, code: memoryview) -> Callable[[str, Iterable[str] | None], dict[str, bytes]]:
    """A function from a role, and names of launches or None for all of them, to their files."""
    rows: dict[str, dict[str, dict[str, Any]]] = json.loads(table)

    def files(role: str, names: Iterable[str] | None = None) -> dict[str, bytes]:
        found = rows[role] if names is None else {name: rows[role][name] for name in names if name in rows[role]}
        facts: dict[str, Any] = {}
        made: dict[str, bytes] = {}
        for name, row in found.items():
            piece = code[row["offset"] : row["offset"] + row["bytes"]]
            if len(piece) != row["bytes"]:
                raise PackageRefused(path, f"the machine code of {name} is outside of {CODE}")
            made[cubin_name(name)] = bytes(piece)
            facts[name] = {key: value for key, value in row.items() if key not in ("offset", "bytes")}
        return {**made, BINARIES: json.dumps(facts).encode()}

    return files
