"""How long a fresh process takes from `import torch` to the first result of a model, by each way that skips compiling.

Takes names of models (`gpt resnet`), `--size` and `--device`. Prints the table of export.md: CPU time of the process
after torch is imported, the least of several processes, in turns; modules loaded on the way; and a later call.
On a GPU it is wall time after torch has a context there, and ends when the result is there. TorchInductor's package and
its warm cache stand beside ours.
"""

from __future__ import annotations

import argparse
import json
import math
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
from minductor.runtime.launch.cuda import target_of

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
folder, name, size, device = sys.argv[1:]
inputs = torch.load(folder + "/inputs.pt", map_location=device)
clock = time.process_time if device == "cpu" else time.perf_counter
wait = (lambda: None) if device == "cpu" else torch.cuda.synchronize
def make():
    from minductor.bench import models
    return models.make(name, size=size)[0].eval().to(device)
wait()
before, start = len(sys.modules), clock()
with torch.no_grad():
    {way}
    call(*inputs)
    wait()
    first = clock() - start
    loaded = len(sys.modules) - before
    start = clock()
    for _ in range({calls}):
        call(*inputs)
    wait()
    later = (clock() - start) / {calls}
print(json.dumps([first, loaded, later]))
"""


def target_named(device: str) -> str | None:
    """The target to export for; None: this machine's CPU."""
    found = None if device == "cpu" else target_of(device)
    return None if found is None else found.name


def prepare(folder: Path, name: str, size: str, device: str) -> None:
    """Both packages, and the inputs."""
    module, inputs, _ = models.make(name, size=size)
    module, inputs = module.eval().to(device), tuple(x.to(device) for x in inputs)
    torch.save(inputs, folder / "inputs.pt")
    minductor.export(module, inputs, folder / "ours.zip", target=target_named(device))
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "theirs.pt2"))


def run(way: str, folder: Path, name: str, size: str, device: str, calls: int = CALLS) -> list[float]:
    """Seconds to the first result, modules, seconds of a later call, in a process with caches of its own.

    Three times NaN if the process failed.
    """
    caches = {"MINDUCTOR_CACHE_DIR": str(folder / "store"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    text = CHILD.format(way=WAYS[way], calls=calls)
    command = [sys.executable, "-W", "ignore", "-c", text, str(folder), name, size, device]
    ran = subprocess.run(command, env={**os.environ, **caches}, check=False, capture_output=True, text=True)
    if ran.returncode:
        print(f"{way}: status {ran.returncode}: {ran.stderr[-300:]}", file=sys.stderr)
        return [math.nan] * 3
    return json.loads(ran.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["gpt", "resnet"])
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    clock = "CPU" if given.device == "cpu" else "wall"
    print(
        f"| model | way | to the first result, {clock} ms | modules | a later call, {clock} µs |\n|---|---|---|---|---|"
    )
    for name in given.models:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            prepare(folder, name, given.size, given.device)
            for way in WAYS:
                run(way, folder, name, given.size, given.device, 1)  # fills the caches
            rounds = [
                {way: run(way, folder, name, given.size, given.device) for way in WAYS} for _ in range(given.rounds)
            ]
            for way in WAYS:
                first, later = (min(each[way][column] for each in rounds) for column in (0, 2))
                print(f"| {name} | {way} | {1000 * first:.0f} | {rounds[0][way][1]:.0f} | {1e6 * later:.0f} |")
            sizes = [f"{(folder / file).stat().st_size / 2**20:.1f} MiB" for file in ("ours.zip", "theirs.pt2")]
            print(f"\n{name}: our package has {sizes[0]}, theirs {sizes[1]}\n")


if __name__ == "__main__":
    main()
