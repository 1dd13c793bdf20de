"""`minductor unpack`: writes the entries of an exported package as files, with the header for a host in C.

Takes the command's arguments. Gives a folder and an exit code. Refuses files that `minductor.load` refuses, and a
folder that exists.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minductor.core.errors import BadArgument, MinductorError

HEADER = "minductor.h"


def main(argv: list[str]) -> int:
    """The command. Exit code 1: the package is not sound, or the folder is taken."""
    parser = argparse.ArgumentParser(
        prog="minductor unpack",
        description="Writes the entries of a package that minductor.export made, and minductor.h, into a new folder.",
        epilog="Exit code: 0 done; 1 no sound package, or the folder exists; 2 a wrong command line.",
    )
    parser.add_argument("package", type=Path, help="the file")
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")
    given = parser.parse_args(argv)
    try:
        libraries = unpack(given.package, given.folder)
    except MinductorError as error:
        print(f"minductor unpack: {error}", file=sys.stderr)
        return 1
    loads = " or ".join(str(given.folder / library) for library in libraries)
    print(f"A host in C loads {loads}" if loads else "Only minductor.load runs it: it needs Python.")
    return 0


def unpack(package: Path, folder: Path) -> tuple[str, ...]:
    """Writes the files into `folder`. Returns the names of the libraries for a host in C: one, or one for each GPU."""
    from minductor.runtime.launch.launch_cpp_wrapper import INCLUDE
    from minductor.runtime.package.archive import open_archive
    from minductor.runtime.package.package import read_manifest
    from minductor.runtime.user_paths import user_path

    archive = open_archive(user_path("the path of a package", package))
    folder = user_path("the folder of minductor unpack", folder)
    manifest = read_manifest(archive)
    try:
        folder.mkdir()
    except OSError as error:
        takes = "a folder that does not exist yet, in one that does"
        raise BadArgument("the folder of minductor unpack", str(folder), takes, why=f"{error.strerror}") from error
    for name, data in archive.entries.items():
        (folder / name).write_bytes(data)
    (folder / HEADER).write_bytes((INCLUDE / HEADER).read_bytes())
    found = (manifest.c_library, *(code.c_library for code in manifest.gpus))
    return tuple(library for library in found if library)
