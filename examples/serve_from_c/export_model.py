"""Exports a classifier for rows of numbers, and writes the parts of the package that a program in C needs.

    python export_model.py build --features 16 --classes 4

It writes into the folder `build`:

    model.zip     the package, which `minductor.load` runs in Python
    model/        its parts as files: the library in C, the weights, the header `minductor.h`
    rows.bin      some rows, as float32
    expected.bin  what the model says of them in eager, as float32

The number of rows is left open, between 2 and 4096: the library serves batches of any such size. The model holds no
matrix product, so no operator of torch is called, and the library needs libc and libgomp only.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import minductor
from minductor.__main__ import main as command_line


class NearestPrototype(nn.Module):
    """The probability of each class: the nearer its prototype, the likelier. Rows are normalised first."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.prototypes = nn.Parameter(torch.randn(classes, features))

    def forward(self, rows: Tensor) -> Tensor:
        distances = (self.norm(rows)[:, None] - self.prototypes).square().sum(-1)
        return torch.softmax(-distances, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Exports a classifier for a program in C.")
    parser.add_argument("folder", type=Path, help="a folder that may be there; `model` in it may not")
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--rows", type=int, default=5, help="how many rows to write for the program in C")
    given = parser.parse_args()

    torch.manual_seed(0)
    model = NearestPrototype(given.features, given.classes).eval()
    given.folder.mkdir(parents=True, exist_ok=True)
    package = given.folder / "model.zip"
    sizes = {"rows": {0: torch.export.Dim("rows", min=2, max=4096)}}
    manifest = minductor.export(model, (torch.randn(8, given.features),), package, dynamic_shapes=sizes)
    if manifest.c_library != "plain.so":
        raise SystemExit(f"the library needs torch, for {', '.join(manifest.needs_torch)}")
    if command_line(["unpack", str(package), str(given.folder / "model")]):
        raise SystemExit(1)

    rows = torch.randn(given.rows, given.features)
    with torch.no_grad():
        expected = model(rows)
    (given.folder / "rows.bin").write_bytes(rows.numpy().tobytes())
    (given.folder / "expected.bin").write_bytes(expected.numpy().tobytes())


if __name__ == "__main__":
    main()
