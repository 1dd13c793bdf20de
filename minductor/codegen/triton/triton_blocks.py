"""The loads and stores of a kernel that use descriptors, block pointers or digits, and the lines that prepare them.

Takes a kernel with its accesses, and its tile. Gives lines, and the texts of loaded values. Refuses nothing. Plain sums
over the tile's axes are written by triton_tile.py.

A descriptor is made once, at the start of the function. A pointer that a loop moves by whole blocks is made before the
loop and advanced at the end of each iteration. Any other pointer is made where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from minductor.codegen.triton.triton_access import (
    Box,
    Starts,
    block_pointer,
    bounds,
    descriptor,
    descriptor_offsets,
    descriptor_shape,
    digit_address,
    is_special,
    pointed,
    pointer_shape,
    turned,
)
from minductor.codegen.triton.triton_launch import Dim
from minductor.codegen.triton.triton_values import is_narrow, triton_type
from minductor.core.dtypes import DType
from minductor.ir.program.memory_access import Access
from minductor.ir.program.nodes import Atomic, Kernel, Load, Store, op_at

Path = tuple[int, ...]


class Blocks:
    """The special accesses of one kernel."""

    def __init__(
        self,
        kernel: Kernel,
        tile: Sequence[Dim],
        dims_of: Callable[[int], Sequence[Dim]],
        starts: Starts,
        pointers: Mapping[str, str],
        dtypes: Mapping[str, DType],
    ) -> None:
        self.starts = starts
        self.found: dict[Path, Access] = {a.path: a for a in kernel.access if is_special(a, tile)}
        self.boxes: dict[Path, Box] = {}
        self.pointers: dict[Path, str] = {}
        self.dtypes: dict[Path, DType] = {}
        for path, access in self.found.items():
            attrs = op_at(kernel.body, path).attrs
            assert access.block is not None and isinstance(attrs, Load | Store | Atomic)
            self.boxes[path] = Box.of(access.block, tile, dims_of(path[0]), starts.extents)
            self.pointers[path] = pointers[attrs.ref.storage]
            self.dtypes[path] = dtypes[attrs.ref.storage]
        self.names: dict[Path, str] = {}  # the names of descriptors, and of pointers that a loop moves
        self.count = 0

    def __contains__(self, path: Path) -> bool:
        return path in self.found

    def counted(self) -> set[str]:
        """The axes whose block numbers the special accesses need."""
        return {axis for box in self.boxes.values() for axis in self.starts.counted(box.block)}

    def heads(self) -> list[str]:
        """The lines that make the descriptors, each once."""
        texts: dict[str, str] = {}
        for path, access in self.found.items():
            if access.form == "descriptor":
                text = descriptor(self.boxes[path], self.pointers[path])
                self.names[path] = texts.setdefault(text, f"d{len(texts)}")
        return [f"{name} = {text}" for text, name in texts.items()]

    def enter(self, axis: str, positions: set[int]) -> list[str]:
        """The lines that make the pointers that a loop over an axis moves, at its first block."""
        lines: list[str] = []
        for path, access in self.found.items():
            if access.form == "pointer" and path[0] in positions and self.step(path, axis):
                name = self.names[path] = self.name()
                lines.append(f"{name} = {block_pointer(self.boxes[path], self.starts, self.pointers[path], axis)}")
        return lines

    def leave(self, axis: str, positions: set[int]) -> list[str]:
        """The lines that advance these pointers."""
        paths = [path for path in self.names if self.found[path].form == "pointer" and path[0] in positions]
        return [
            f"{name} = tl.advance({name}, {self.step(path, axis)})" for path in paths if (name := self.names.pop(path))
        ]

    def step(self, path: Path, axis: str) -> list[int]:
        """How much a pointer grows in each of its dimensions; [] if it must be made again for each block."""
        box = self.boxes[path]
        if any(box.block.dims[n].axis == axis for n in box.far()):
            return []
        steps = self.starts.steps(box.block, axis)
        kept = pointed(box)
        if steps is None or any(step for n, step in enumerate(steps) if n not in kept):
            return []
        return [steps[n] for n in kept]

    def name(self) -> str:
        self.count += 1
        return f"p{self.count - 1}"

    def load(self, path: Path, *, is_raw: bool = False) -> str:
        """A loaded value of the tile. `is_raw`: in the dtype of memory, with zeros where no element exists."""
        box, dtype = self.boxes[path], self.dtypes[path]
        match self.found[path].form:
            case "offsets":
                at, mask = digit_address(box, self.starts, self.pointers[path])
                zeros = ", other=0.0" if is_raw and mask else ""
                value, given = f"tl.load({at}{f', {mask}' if mask else ''}{zeros})", box.shape(is_whole=False)
            case "pointer":
                at = self.names.get(path) or block_pointer(box, self.starts, self.pointers[path])
                padding = ', padding_option="zero"' if bounds(box) else ""
                value, given = f"tl.load({at}{bounds(box)}{padding})", pointer_shape(box)
            case "descriptor":
                value = f"{self.names[path]}.load({descriptor_offsets(box, self.starts)})"
                value, given = turned(box, value, is_load=True), descriptor_shape(box)
        value = box.to_tile(value, given)
        if dtype.kind == "bool" and self.found[path].form == "pointer":
            return f"{value}.to(tl.int1)"
        return f"{value}.to(tl.float32)" if is_narrow(dtype) and not is_raw else value

    def store(self, path: Path, value: str) -> str:
        """The statement that stores a value of the tile."""
        box, dtype = self.boxes[path], self.dtypes[path]
        kind = "tl.int8" if dtype.kind == "bool" else triton_type(dtype)
        match self.found[path].form:
            case "offsets":
                at, mask = digit_address(box, self.starts, self.pointers[path])
                value = box.from_tile(value, box.shape(is_whole=False))
                return f"tl.store({at}, {value}{f', {mask}' if mask else ''})"
            case "pointer":
                at = self.names.get(path) or block_pointer(box, self.starts, self.pointers[path])
                value = f"{box.from_tile(value, pointer_shape(box))}.to({kind})"
                return f"tl.store({at}, {value}{bounds(box)})"
            case "descriptor":
                value = f"{box.from_tile(value, descriptor_shape(box))}.to({kind})"
                value = turned(box, value, is_load=False)
                return f"{self.names[path]}.store({descriptor_offsets(box, self.starts)}, {value})"
