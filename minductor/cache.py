"""`minductor cache`: how large the cache on disk is, what is in it, and how to empty it.

Takes the command's arguments. Gives lines on stdout and an exit code. Refuses a folder that the store does not trust.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path

from minductor.core.errors import MinductorError, MinductorWarning


def main(argv: list[str]) -> int:
    """The command. Exit code 1: the cache folder cannot be used."""
    parser = argparse.ArgumentParser(
        prog="minductor cache",
        description="The cache of compiled graphs: MINDUCTOR_CACHE_DIR, or ~/.cache/minductor.",
        epilog="Exit code: 0 done; 1 the folder cannot be used; 2 a wrong command line.",
    )
    parser.add_argument(
        "action",
        choices=("size", "list", "clear"),
        nargs="?",
        default="size",
        help="size: entries and bytes (the default); list: each entry, the longest unused first; clear: remove all",
    )
    parser.add_argument("--dir", type=Path, metavar="PATH", help="another cache folder")
    given = parser.parse_args(argv)
    try:
        with warnings.catch_warnings():
            # Elsewhere a folder that cannot be written is replaced by a private one, which has nothing to show.
            warnings.simplefilter("error", MinductorWarning)
            return _act(given.action, given.dir)
    except MinductorError as error:
        print(error, file=sys.stderr)
        return 1


def _act(action: str, folder: Path | None) -> int:
    from minductor.runtime.store import Store

    store = Store.open(folder, os.environ)
    with warnings.catch_warnings():
        warnings.simplefilter("default", MinductorWarning)  # a damaged entry is removed, and is no reason to stop
        entries = store.entries()
    match action:
        case "list":
            for entry in entries:
                print(f"{entry.key[:16]} {entry.variant:<6} {readable(entry.size):>9}  {_what(entry)}")
        case "clear":
            freed = store.size()
            store.clear()
            print(f"removed {_count(len(entries))}, {readable(freed)}, from {store.root}")
        case _:
            limit = readable(store.limit_bytes)
            print(f"{_count(len(entries))}, {readable(store.size())} of at most {limit}, in {store.root}")
    return 0


def _what(entry: object) -> str:
    """The kernels of an entry, from its report; a foreign entry has none."""
    import json

    from minductor.runtime.store import Entry

    if not isinstance(entry, Entry) or "report.json" not in entry.contents:
        return "no report"
    facts = json.loads(entry.text("report.json"))
    return f"{facts['role']}: {', '.join(facts['kernel_names']) or 'no kernels'}"


def _count(entries: int) -> str:
    return f"{entries} {'entry' if entries == 1 else 'entries'}"


def readable(size: float) -> str:
    """Bytes for people.

    >>> readable(0), readable(1536), readable(2 * 1024**3)
    ('0 B', '1.5 KiB', '2.0 GiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
