"""Checks a path that a user gives, and expands the home folder in it.

Takes text or a path. Gives the path, with `~` and `~name` expanded. Refuses what cannot name a file: a null byte, text
that the file system cannot encode, the home of an unknown user, names that are too long (BadArgument).

>>> user_path("a package", "models/linear.zip")
PosixPath('models/linear.zip')
>>> user_path("a package", 5)
Traceback (most recent call last):
...
minductor.core.errors.BadArgument: [MD007] a package cannot be 5 (int)
  hint: it takes a path
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from minductor.core.errors import BadArgument


def user_path(name: str, given: Any) -> Path:
    """The path that `given` names. `name` is how an error refers to it."""
    if not isinstance(given, str | os.PathLike):
        raise BadArgument(name, given, "a path")
    text = os.fspath(given)
    if not isinstance(text, str):
        raise BadArgument(name, given, "a path of text")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise BadArgument(name, text, "a path", why="the file system cannot encode it") from None
    if "\0" in text:
        raise BadArgument(name, text, "a path", why="a path cannot contain a null byte")
    try:
        path = Path(text).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
    except RuntimeError:
        home = Path(text).parts[0]
        raise BadArgument(name, text, "a path", why=f"{home} is not the home of a user of this machine") from None
    except OSError as error:  # a name that is too long, a circle of links
        raise BadArgument(name, text, "a path", why=f"{error.strerror}") from None
    return path
