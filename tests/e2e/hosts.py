"""The host in C that runs exported packages: host.c, by the compiler of C.

Takes a folder. Gives the program. Refuses nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from minductor.runtime.launch.launch_cpp_wrapper import INCLUDE


def build_host(folder: Path) -> Path:
    """The program in the folder."""
    built, compiler = folder / "host", shutil.which("cc") or shutil.which("gcc") or "cc"
    command = [compiler, "-std=c11", "-Wall", "-Werror", "-O1", f"-I{INCLUDE}", str(Path(__file__).with_name("host.c"))]
    subprocess.run([*command, "-o", str(built), "-ldl"], check=True)
    return built
