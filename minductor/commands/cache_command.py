"""`minductor cache`: shows the size and the entries of the cache on disk, empties it, or takes over an old one.

Takes the command's arguments. Gives lines on stdout and an exit code. Refuses a folder that is no cache of minductor,
and a folder that other users can write to. Only `clear` and `adopt` change anything.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from minductor.core.errors import MinductorError
from minductor.ir.artefact.winner import WINNER, Winner

if TYPE_CHECKING:
    from minductor.runtime.store.store import Entry, Store


def main(argv: list[str]) -> int:
    """The command. Exit code 1: the cache folder cannot be used."""
    parser = argparse.ArgumentParser(
        prog="minductor cache",
        description="The cache of compiled graphs: MINDUCTOR_CACHE_DIR, or ~/.cache/minductor.",
        epilog="Exit code: 0 done; 1 the folder cannot be used; 2 a wrong command line.",
    )
    parser.add_argument(
        "action",
        choices=("size", "list", "clear", "adopt"),
        nargs="?",
        default="size",
        help="size: entries and bytes (the default); list: each entry, the longest unused first, with what autotuning "
        "chose; clear: remove all, also while other processes compile; adopt: use the cache of an older minductor, "
        "whose folder has no marker",
    )
    parser.add_argument("--dir", type=Path, metavar="PATH", help="another cache folder")
    given = parser.parse_args(argv)
    try:
        return _act(given.action, given.dir)
    except MinductorError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"the cache folder cannot be used: {error}", file=sys.stderr)
    return 1


def _act(action: str, folder: Path | None) -> int:
    from minductor.runtime.store.cache_folder import check_trust
    from minductor.runtime.store.store import Store, adopt

    root = Store.place(folder, os.environ)
    if action == "adopt":
        store = adopt(root)
    elif folder is None and _is_unused(root):
        if root.exists():
            check_trust(root)
        print(f"0 entries, {readable(0)}: nothing has been compiled into {root} yet")
        return 0
    else:
        store = Store(root, reads_only=True)
    match action:
        case "list":
            for entry in store.entries():
                print(f"{entry.key[:16]} {entry.variant:<6} {readable(entry.size):>9}  {_what(entry)}")
        case "clear":
            count, size = store.count(), store.size()
            Store(store.root).clear()
            left = store.count()
            print(f"removed {_count(max(0, count - left))}, {readable(max(0, size - store.size()))}, from {store.root}")
            if left and not os.access(store.root / "entries", os.W_OK | os.X_OK):
                raise PermissionError(f"{_count(left)} of {store.root} cannot be removed: no permission to write there")
        case _:
            print(_summary(store))
    return 0


def _is_unused(root: Path) -> bool:
    """Whether the folder is absent or empty, as it is before the first compile."""
    return not root.exists() or (root.is_dir() and next(root.iterdir(), None) is None)


def _summary(store: Store) -> str:
    """One line about a store: its entries, its damaged entries, its bytes, and its locks and temporary folders."""
    whole = store.entries()
    damaged, (count, size) = store.count() - len(whole), store.temporary_size()
    others = f" and {damaged} damaged" if damaged else ""
    temporary = f"; {count} locks and temporary folders among them ({readable(size)})" if count else ""
    limit = readable(store.limit_bytes)
    return f"{_count(len(whole))}{others}, {readable(store.size())} of at most {limit}, in {store.root}{temporary}"


def _what(entry: Entry) -> str:
    """The role and the kernels of an entry's graph, from its report; of a measured choice, what won and where."""
    import json

    if WINNER in entry.contents:
        return f"winner: {Winner.from_json(entry.text(WINNER)) or 'of another version'}"
    if "report.json" not in entry.contents:
        return "no report"
    facts = json.loads(entry.text("report.json"))
    return f"{facts['role']}: {', '.join(facts['kernel_names']) or 'no kernels'}"


def _count(entries: int) -> str:
    return f"{entries} {'entry' if entries == 1 else 'entries'}"


def readable(size: float) -> str:
    """A number of bytes as text, in the largest unit of which there is at least one.

    >>> readable(0), readable(1536), readable(2 * 1024**3)
    ('0 B', '1.5 KiB', '2.0 GiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
