"""How long a fresh process takes from `import torch` to the first result of a model, by each way that skips compiling.

Takes names of models (`gpt resnet`) and `--size`. Prints the table of export.md: CPU time of the process after torch is
imported, the least of several processes, in turns; modules that were loaded on the way; and a later call.
TorchInductor's package and its warm cache stand beside ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch

import minductor
from minductor.bench import models

ROUNDS, CALLS = 3, 200

# What each way does in its process; `make()` gives the model and its inputs, which a package does not need.
WAYS: Mapping[str, str] = {
    "`minductor.load`": "import minductor; call = minductor.load(folder + '/ours.zip')",
    "`aoti_load_package`": "call = torch._inductor.aoti_load_package(folder + '/theirs.pt2')",
    "warm `torch.compile`, minductor": "call = torch.compile(make(), backend='minductor')",
    "warm `torch.compile`, TorchInductor": "call = torch.compile(make(), backend='inductor')",
    "eager": "call = make()",
}

CHILD = """
import json, sys, time, torch
torch.set_num_threads(1)
folder, name, size = sys.argv[1:]
inputs = torch.load(folder + "/inputs.pt")
def make():
    from minductor.bench import models
    return models.make(name, size=size)[0].eval()
before, start = len(sys.modules), time.process_time()
with torch.no_grad():
    {way}
    call(*inputs)
    first = time.process_time() - start
    loaded = len(sys.modules) - before
    start = time.process_time()
    for _ in range({calls}):
        call(*inputs)
    later = (time.process_time() - start) / {calls}
print(json.dumps([first, loaded, later]))
"""


def prepare(folder: Path, name: str, size: str) -> None:
    """Both packages, and the inputs."""
    module, inputs, _ = models.make(name, size=size)
    module.eval()
    torch.save(inputs, folder / "inputs.pt")
    minductor.export(module, inputs, folder / "ours.zip")
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "theirs.pt2"))


def run(way: str, folder: Path, name: str, size: str, calls: int = CALLS) -> list[float]:
    """Seconds to the first result, modules, seconds of a later call, in a process with caches of its own."""
    caches = {"MINDUCTOR_CACHE_DIR": str(folder / "store"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    text = CHILD.format(way=WAYS[way], calls=calls)
    command = [sys.executable, "-W", "ignore", "-c", text, str(folder), name, size]
    ran = subprocess.run(command, env={**os.environ, **caches}, check=True, capture_output=True, text=True)
    return json.loads(ran.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["gpt", "resnet"])
    parser.add_argument("--size", default="tiny")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| model | way | to the first result, CPU ms | modules | a later call, CPU µs |\n|---|---|---|---|---|")
    for name in given.models:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            prepare(folder, name, given.size)
            for way in WAYS:
                run(way, folder, name, given.size, 1)  # fills the caches
            rounds = [{way: run(way, folder, name, given.size) for way in WAYS} for _ in range(ROUNDS)]
            for way in WAYS:
                first, later = (min(each[way][column] for each in rounds) for column in (0, 2))
                print(f"| {name} | {way} | {1000 * first:.0f} | {rounds[0][way][1]:.0f} | {1e6 * later:.0f} |")
            sizes = [f"{(folder / file).stat().st_size / 2**20:.1f} MiB" for file in ("ours.zip", "theirs.pt2")]
            print(f"\n{name}: our package has {sizes[0]}, theirs {sizes[1]}\n")


if __name__ == "__main__":
    main()
