"""The C++ code that an exported package has beside its wrapper, for hosts in C.

Takes a manifest, and for a GPU the binaries of its kernels. Gives the check of a call's inputs, and the tables that say
where the constants and binaries lie in their files. Refuses nothing.

>>> from minductor.ir.artefact.manifest import Layout, Leaf, SymbolRange
>>> x = Leaf("x", "tensor", Layout("f32", ("2*s0", "8"), ("8", "1")), None, is_fixed=False)
>>> print("\\n".join(_check([x], [SymbolRange("s0", 2, 64, 0, 0, 2, 0)], [])))
bool md_expected(md_Call& md, const md_tensor* given) {
  MD_TRY(md_typed(md, given[0], "x", md_float32, 2));
  int64_t s0;
  MD_TRY(md_told(md, "x", given[0].sizes[0], 2, 0, 2, 64, s0));
  MD_TRY(md_shaped(md, given[0], "x", {2 * s0, 8}, {8, 1}));
  return true;
}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from minductor.codegen.cpp.cpp_text import index_text
from minductor.core.dtypes import by_name
from minductor.core.expressions.expr import Symbol, symbol
from minductor.core.expressions.expr_parser import parse_expr
from minductor.ir.artefact.manifest import Layout, Leaf, Manifest, SymbolRange, Weight


@dataclass(frozen=True, slots=True)
class PackedBinary:
    """A binary in the file of a package, for a row of `md_Binary` in minductor_cuda_package.h.

    `kernel`: the number of its kernel in the wrapper. `programs`, `greatest_index`: pairs of a code and a value.
    """

    kernel: int
    offset: int
    bytes: int
    entry: str
    kinds: str
    programs: Sequence[tuple[int, int]]
    greatest_index: Sequence[tuple[int, int]]
    threads: int
    shared: int
    is_aligned: bool
    scratch: int
    has_counter: bool


@dataclass(frozen=True, slots=True)
class PackedCode:
    """The binaries in a file of a package, and a letter for each argument of each kernel of the wrapper.

    `cuda`: the version of CUDA whose assembler made the code, such as "12.8".
    """

    file: str
    cuda: str
    binaries: Sequence[PackedBinary]
    kinds: Sequence[str]


def package_cpp(manifest: Manifest, code: PackedCode | None = None) -> str:
    """The C++ text that a package has behind its wrapper. The wrapper's header must stand before it.

    `code`: the machine code of a package for a GPU.
    """
    held = [weight for weight in manifest.weights if not weight.is_state]
    state = [weight for weight in manifest.weights if weight.is_state]
    bytes = max((weight.offset + weight.bytes for weight in manifest.weights), default=0)
    return "\n".join(
        (
            "",
            '#include "minductor_package.h"' if code is None else '#include "minductor_cuda_package.h"',
            "",
            "// Are the inputs what was exported?",
            *_check(manifest.leaves, manifest.symbols, state),
            "",
            "// Each constant: its place in the file, dtype, dimensions, and the place of its sizes and strides below.",
            *_table(held),
            *((f"MD_PACKAGE({len(held)}, {bytes})",) if code is None else _gpu_code(code)),
            *(() if code is None else (f"MD_GPU_PACKAGE({len(held)}, {bytes})",)),
            "",
        )
    )


def _check(leaves: Sequence[Leaf], symbols: Sequence[SymbolRange], state: Iterable[Weight]) -> Iterator[str]:
    """The check of a call: first kinds, then the numbers that sizes determine, then others, sizes and strides."""
    place: dict[int, int] = {}
    for number, leaf in enumerate(leaves):
        if leaf.kind != "value":
            place[number] = len(place)
    known = {row.name: symbol(row.name, "size", row.low, row.high) for row in symbols}
    layouts = [(leaves[number].name, at, leaves[number].layout) for number, at in place.items()]
    layouts += [(weight.name, len(place) + n, weight.layout) for n, weight in enumerate(state)]
    yield "bool md_expected(md_Call& md, const md_tensor* given) {"
    for name, at, layout in layouts:
        dtype, ndim = ("int64", 0) if layout is None else (by_name(layout.dtype).torch_name, len(layout.size))
        yield f'  MD_TRY(md_typed(md, given[{at}], "{name}", md_{dtype}, {ndim}));'
    for row in symbols:
        at = f"given[{place[row.leaf]}]"
        told = f"*static_cast<const int64_t*>({at}.data)" if row.dim is None else f"{at}.sizes[{row.dim}]"
        low, high = ("INT64_MIN" if row.low is None else row.low), ("INT64_MAX" if row.high is None else row.high)
        name, rule = leaves[row.leaf].name, f"{row.scale}, {row.shift}, {low}, {high}, {row.name}"
        yield f"  int64_t {row.name};"
        yield f'  MD_TRY(md_told(md, "{name}", {told}, {rule}));'
    for number, at in place.items():
        leaf = leaves[number]
        told = {row.name for row in symbols if row.leaf == number and row.dim is None}
        if leaf.layout is None and leaf.value not in told:  # its value follows from other arguments
            wanted = index_text(parse_expr(str(leaf.value), known))
            about = f"*static_cast<const int64_t*>(given[{at}].data), 1, 0, {wanted}, {wanted}"
            yield f"  int64_t same{at};"
            yield f'  MD_TRY(md_told(md, "{leaf.name}", {about}, same{at}));'
    for name, at, layout in layouts:
        if layout is not None:
            size, stride = _row(layout.size, known), _row(layout.stride, known)
            yield f'  MD_TRY(md_shaped(md, given[{at}], "{name}", {size}, {stride}));'
    yield "  return true;"
    yield "}"


def _row(sizes: Iterable[str], symbols: Mapping[str, Symbol]) -> str:
    return f"{{{', '.join(index_text(parse_expr(text, symbols)) for text in sizes)}}}"


def _gpu_code(code: PackedCode) -> Iterator[str]:
    """The table of the binaries."""
    steps: dict[tuple[tuple[int, int], ...], str] = {}

    def named(counted: Sequence[tuple[int, int]]) -> str:
        return steps.setdefault(tuple(counted), f"md_steps{len(steps)}") if counted else "nullptr"

    rows = [
        f'    {{{b.kernel}, {b.offset}, {b.bytes}, "{b.entry}", "{b.kinds}", {named(b.programs)}, '
        f"{named(b.greatest_index)}, {b.threads}, {b.shared}, {int(b.is_aligned)}, {b.scratch}, {int(b.has_counter)}}},"
        for b in code.binaries
    ]
    yield ""
    yield "// Each binary: its kernel, place in the file, entry, and what a launch needs."
    for counted, name in steps.items():
        row = ", ".join(f"{{(md_Code){step}, {value}}}" for step, value in (*counted, (0, 0)))
        yield f"static const md_Step {name}[] = {{{row}}};"
    yield "static const md_Binary md_binaries[] = {"
    yield from rows
    yield "    {}};"
    kinds = ", ".join((*(f'"{kind}"' for kind in code.kinds), "nullptr"))
    yield f"static const char* const md_kinds[] = {{{kinds}}};"
    row = f'"{code.file}", "{code.cuda}", md_binaries, {len(code.binaries)}, md_kinds'
    yield f"static const md_GpuCode md_code = {{{row}}};"


def _table(weights: Sequence[Weight]) -> Iterator[str]:
    layouts: dict[Layout, int] = {}
    numbers: list[str] = []
    for weight in weights:
        if weight.layout not in layouts:
            layouts[weight.layout] = len(numbers)
            numbers += [*weight.layout.size, *weight.layout.stride]
    yield f"static const int64_t md_layouts[] = {{{', '.join((*numbers, '0'))}}};"
    yield "static const md_Place md_places[] = {"
    for weight in weights:
        layout = weight.layout
        dtype = by_name(layout.dtype).torch_name
        yield f"    {{{weight.offset}, md_{dtype}, {len(layout.size)}, {layouts[layout]}}},  // {weight.name}"
    yield "    {0, md_uint8, 0, 0}};"
