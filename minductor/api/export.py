"""Writes a program into a package: one file that `minductor.load` runs without this compiler.

Takes a function, a module or a torch.export.ExportedProgram, example arguments, a path, and the names of targets. Gives
the Manifest of the file. Refuses what has no meaning outside of this process, and devices other than the CPU and GPUs
of NVIDIA (NotExportable). `export_gpu.py` makes the part of a package that GPUs run.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minductor.core.errors import NotExportable, WrapperReplaced
from minductor.driver_tasks.argument_checks import check_exported
from minductor.driver_tasks.graph_rewrites import ExportRewrites, trace_rewrites
from minductor.options import mapping_of

if TYPE_CHECKING:
    import torch

    from minductor.core.expressions.expr import Symbol
    from minductor.driver import Compiler
    from minductor.driver_tasks.graph_rewrites import Rewritten
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.frontend.exported.exported_program import Exported
    from minductor.frontend.exported.exported_program import Leaf as Argument
    from minductor.ir.artefact.manifest import Layout, Leaf, Manifest, SymbolRange, Weight
    from minductor.ir.artefact.source import Source
    from minductor.ir.plan.plan import Plan
    from minductor.ir.report.report import Report
    from minductor.target import Env, Target

Bytes = bytes | memoryview

# features of processors that compiled code may use; other flags matter to operating systems and to assembly only
# (sse4a), or say what sse says as well (mmxext)
_USED = re.compile(r"(mmx(?!ext)|sse(?!4a)|ssse|avx|fma|f16c|bmi|abm|popcnt|movbe|amx|gfni|asimd|sve|fp|neon).*")


def export(
    program: torch.export.ExportedProgram | Callable[..., Any],
    args: Sequence[Any],
    path: str | os.PathLike[str],
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    target: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
) -> Manifest:
    """Compiles a program for inference into a package file: for this machine's CPU, or for GPUs that need not be here.

    The program is traced, not run.

    Args:
        program: a function or a torch.nn.Module, which `torch.export` traces, or a torch.export.ExportedProgram.
        args: example arguments, of the shapes and dtypes to compile for; an empty tuple for an ExportedProgram.
        path: the file to write; a file that is there is replaced.
        kwargs: example arguments by name.
        dynamic_shapes: the sizes that may vary, as torch.export.export takes them.
        target: "cpu", or the names of one or more GPU targets: the package has machine code for each, such as
            ("sm_80", "sm_90"). None means the option "target", or the CPU. `args` and weights may be on the CPU.
        options: values by option name, as torch.compile(options=...) takes them.

    Returns:
        The manifest of the package: inputs, results, weights (as they are now) and what the code needs of a machine.

    Raises:
        BadArgument, BadCall: an argument is of another kind than it is used for, or the program does not take it.
        UnknownOption, BadOptionValue: an option does not exist, or does not take its value.
        UnknownTarget: there is no target of that name.
        NotExportable: the program needs this process or another device, is not one graph, or `path` cannot be written.
    """
    from minductor.api.export_gpu import gpu_targets
    from minductor.frontend.capture.capture import capture
    from minductor.frontend.exported.exported_program import export_program, read_program, refusing_eager
    from minductor.runtime.package import package
    from minductor.runtime.package.archive import check_place, write_archive
    from minductor.runtime.user_paths import user_path

    check_exported("export", program, args, kwargs, dynamic_shapes)
    place = user_path("the path of a package", path)
    check_place(place)
    gpus = gpu_targets(target, mapping_of(options).get("target"))
    envs = [_env(options, each) for each in gpus] or [_env(options)]
    rewrites = ExportRewrites((), envs[0], folds=True)  # GPUs share what they are traced to
    found = read_program(export_program(program, args, kwargs, dynamic_shapes), rewrites.rewrite_program)
    with refusing_eager():
        rewritten = rewrites.rewrite_aten(found.gm)
        graph = _checked(capture(found.gm, "inference"), has_gpus=bool(gpus))
        compiled = [_compiled(graph, env, rewritten, options) for env in envs]
    weights, constants = _weights(graph, found)
    manifest = _manifest(found, graph, compiled[0], weights)
    made, manifest = _for_gpus(compiled, manifest, graph) if gpus else (_files(compiled[0], manifest), manifest)
    entries: dict[str, Sequence[Bytes]] = {name: [data] for name, data in made.items()}
    entries[package.CONSTANTS] = constants
    manifest = replace(manifest, digests={name: _digest(pieces) for name, pieces in entries.items()})
    write_archive(place, {package.MANIFEST: [manifest.text().encode()], **entries})
    return manifest


@dataclass(frozen=True, slots=True)
class _Compiled:
    """The texts, the plan and the report of the exported graph, with the compiler that made them."""

    compiler: Compiler
    env: Env
    source: Source
    plan: Plan
    report: Report


def _for_gpus(compiled: Sequence[_Compiled], manifest: Manifest, graph: Graph) -> tuple[dict[str, bytes], Manifest]:
    """The entries of a package for GPUs, and its manifest with the facts of all targets."""
    from minductor.api.export_gpu import gpu_entries
    from minductor.codegen.wrapper.wrapper_cpp import needs_torch

    texts = [(each.env, each.source, each.plan) for each in compiled]
    made, codes = gpu_entries(texts, compiled[0].compiler, graph, manifest)
    choices = tuple(row for each in compiled for row in _choices(each, f"{each.env.target.name}: "))
    operators = dict.fromkeys(op for each in compiled for op in needs_torch(each.plan))
    return made, replace(manifest, features=(), gpus=codes, choices=choices, needs_torch=tuple(operators))


def _checked(graph: Graph, *, has_gpus: bool) -> Graph:
    """The graph; moved to the GPU, if the program is for GPUs: it may have been traced on the CPU or on one GPU.

    Raises NotExportable if the graph needs an object of this process, or a device that the package does not run on.
    """
    from minductor.api.export_gpu import gpu_graph
    from minductor.frontend.capture.captured_graph import TensorMeta

    regions = {region.name for region in graph.regions}
    for name, value in graph.live.externals.items():
        if name not in regions:
            raise NotExportable(name, f"it is a {type(value).__name__} of this process")
    found = ""  # the GPU of the graph
    for given in (*graph.inputs, *graph.constants):
        if not isinstance(given.meta, TensorMeta) or given.meta.device == "cpu":
            continue
        device = given.meta.device
        if not has_gpus or device.partition(":")[0] != "cuda":
            hint = "target=('sm_80', 'sm_90') exports for GPUs" if device.startswith("cuda") else ""
            why = f"it is on {device}, and this package is for {'GPUs of NVIDIA' if has_gpus else 'the CPU'}"
            raise NotExportable(given.name, why, hint=hint)
        if found not in ("", device):
            raise NotExportable(given.name, f"it is on {device}, and another tensor on {found}: a package has one GPU")
        found = device
    return gpu_graph(graph) if has_gpus else graph


def _env(options: Mapping[str, object] | None, gpu: Target | None = None) -> Env:
    from minductor.backends import find_target
    from minductor.options import Options
    from minductor.target import Env

    chosen = {"wrapper": "cpp", **(options or {}), **({"target": gpu.name} if gpu else {})}
    chosen["cudagraphs"] = False  # Python records them, which a package may not have
    return Env(Options.parse(None, chosen), gpu or find_target("cpu")).supported()[0]


def _compiled(graph: Graph, env: Env, rewritten: Rewritten, options: Mapping[str, object] | None) -> _Compiled:
    """The compiled graph. Its wrapper is C++ where C++ suffices and the options name no other language."""
    from minductor.backends import find_backend
    from minductor.driver import Compiler

    compiler, backend = Compiler(), find_backend(env.target.kind)
    trace_rewrites(compiler.trace(env), "inference", rewritten)
    with warnings.catch_warnings():
        if env.target.is_gpu:
            warnings.simplefilter("error", WrapperReplaced)
        elif "wrapper" not in (options or {}):
            warnings.simplefilter("ignore", WrapperReplaced)
        try:
            made = compiler.compile_program(graph, env, backend, is_measured=not env.target.is_gpu)
        except WrapperReplaced as replaced:
            raise NotExportable(f"a program for {env.target.name}", replaced.why) from replaced
        return _Compiled(compiler, env, *made)


def _files(compiled: _Compiled, manifest: Manifest) -> dict[str, bytes]:
    """The plan, the texts and the machine code by the names of their entries."""
    from minductor.codegen.wrapper.wrapper_cpp import wrapper_cpp
    from minductor.codegen.wrapper.wrapper_cpp_package import package_cpp
    from minductor.ir.plan.plan_json import plan_json
    from minductor.runtime.build.toolchain import Unit
    from minductor.runtime.launch import launch, launch_cpp_wrapper
    from minductor.runtime.package.package import PLAIN, PLAN

    source, toolchain = compiled.source, compiled.compiler.artefacts.toolchain
    files = {PLAN: plan_json(compiled.plan).encode()}
    with tempfile.TemporaryDirectory(prefix="minductor-") as folder:
        if manifest.c_library:
            source = replace(source, wrapper=source.wrapper + package_cpp(manifest))
        options = replace(compiled.env.options, sanitize=False)
        files.update(launch.build(source, toolchain, Path(folder), options, user_lines=lambda symbol: ""))
        if manifest.c_library == PLAIN:
            text = wrapper_cpp(compiled.plan, compiled.env, "minductor_plain.h") + package_cpp(manifest)
            units = [Unit(unit.name, unit.text) for unit in source.units]
            include, limit = [str(launch_cpp_wrapper.INCLUDE)], options.compiler_timeout
            toolchain.compile([*units, Unit("plain", text)], Path(folder) / PLAIN, include=include, timeout_s=limit)
            files[PLAIN] = (Path(folder) / PLAIN).read_bytes()
    return files


def _c_library(compiled: _Compiled) -> str:
    """The name of the library in the package that a host in C loads; "" if a call needs Python."""
    from minductor.codegen.wrapper.wrapper_cpp import needs_torch
    from minductor.runtime.launch.launch import LIBRARY, WRAPPER_CPP
    from minductor.runtime.package.package import PLAIN

    if compiled.env.target.is_gpu:
        return ""
    if compiled.source.wrapper_file != WRAPPER_CPP or "\nMD_PYTHON(" in compiled.source.wrapper:
        return ""
    return LIBRARY if needs_torch(compiled.plan) else PLAIN


def _weights(graph: Graph, found: Exported) -> tuple[tuple[Weight, ...], list[Bytes]]:
    """The rows of the program's tensors, and their bytes one after another; tensors that share memory have one copy."""
    import torch

    from minductor.ir.artefact.manifest import Weight
    from minductor.runtime.package.archive import ALIGNMENT

    held = [(name, value, False) for name, value in graph.bound().items() if isinstance(value, torch.Tensor)]
    pieces: list[Bytes] = []
    places: dict[tuple[int, int], int] = {}
    rows: list[Weight] = []
    end = 0
    for name, value, is_state in (*held, *((name, value, True) for name, value in found.state.items())):
        data = _bytes(value)
        place = (value.data_ptr(), len(data))
        if place not in places:
            places[place] = end
            fill = bytes(-len(data) % ALIGNMENT)
            pieces += [data, fill]
            end += len(data) + len(fill)
        rows.append(Weight(name, _layout(value), places[place], len(data), is_state))
    return tuple(rows), pieces


def _bytes(value: torch.Tensor) -> memoryview:
    """The bytes of a tensor's memory, from its first element to its last one."""
    import torch

    if not value.numel():
        return memoryview(b"")
    span = 1 + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    flat: Any = value.as_strided((span,), (1,)).view(torch.uint8).cpu().numpy()
    return memoryview(flat)


def _layout(value: torch.Tensor) -> Layout:
    from minductor.frontend.capture.capture import dtype_of
    from minductor.ir.artefact.manifest import Layout

    return Layout(dtype_of(value.dtype).name, tuple(map(str, value.shape)), tuple(map(str, value.stride())))


def _manifest(found: Exported, graph: Graph, compiled: _Compiled, weights: tuple[Weight, ...]) -> Manifest:
    """The manifest of the package, without the digests of its entries."""
    import torch

    from minductor.codegen.wrapper.wrapper_cpp import needs_torch
    from minductor.ir.artefact.manifest import Manifest
    from minductor.runtime.build.probe import probe
    from minductor.runtime.launch import launch_cpp_wrapper
    from minductor.runtime.package.package import machine
    from minductor.version import __version__

    returned = {name.name for storage in compiled.plan.storages if storage.is_returned for name in storage.names}
    leaves = tuple(_leaf(argument, graph, is_returned=argument.name in returned) for argument in found.inputs)
    return Manifest(
        minductor=__version__,
        interface=launch_cpp_wrapper.interface(),
        torch=torch.__version__,
        machine=machine(),
        features=tuple(feature for feature in probe().features if _USED.fullmatch(feature)),
        parameters=found.parameters,
        positional=found.in_spec.child(0).num_children,
        in_spec=_tree(found.in_spec, "the structure of its arguments"),
        out_spec=_tree(found.out_spec, "the structure of its results"),
        leaves=leaves,
        symbols=tuple(_symbols(leaves, graph, found)),
        weights=weights,
        needs_torch=needs_torch(compiled.plan),
        c_library=_c_library(compiled),
        choices=tuple(_choices(compiled)),
        digests={},
    )


def _choices(compiled: _Compiled, before: str = "") -> Iterator[tuple[str, str]]:
    """Each choice and the option that was taken; `before` stands before the name of the kernel."""
    for kernel, choice, _, taken, _ in compiled.report.choices:
        yield f"{before}{kernel} {choice}", taken
    for kernel, taken, by, _, _ in compiled.report.variants:
        if by == "measure" or compiled.env.target.is_gpu:
            yield f"{before}{kernel} variant", taken


def _tree(spec: Any, what: str) -> Any:
    from minductor.runtime.package.pytree_json import tree_json

    try:
        return tree_json(spec)
    except ValueError as error:
        raise NotExportable(what, str(error), hint="Use tuples, lists and dicts.") from error


def _digest(pieces: Sequence[Bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _leaf(argument: Argument, graph: Graph, *, is_returned: bool) -> Leaf:
    from minductor.frontend.capture.captured_graph import TensorMeta
    from minductor.ir.artefact.manifest import Layout, Leaf

    if argument.input is None:
        if argument.value is not None and type(argument.value) not in (bool, int, float, str):
            raise NotExportable(argument.name, f"it is a {type(argument.value).__name__}")
        return Leaf(argument.name, "value", None, argument.value, is_fixed=False)
    meta = graph.inputs[argument.input].meta
    if not isinstance(meta, TensorMeta):
        return Leaf(argument.name, "number", None, str(meta), is_fixed=False)
    layout = Layout(meta.dtype.name, tuple(map(str, meta.size)), tuple(map(str, meta.stride)), meta.device)
    is_changed = argument.is_changed
    is_fixed = is_changed or is_returned or argument.is_windowed
    return Leaf(argument.name, "tensor", layout, None, is_fixed, is_changed, argument.begin)


def _symbols(leaves: Sequence[Leaf], graph: Graph, found: Exported) -> Iterator[SymbolRange]:
    """For each symbol of the arguments, the argument that is this number, or else the size that determines it.

    Raises NotExportable for a symbol that no argument determines.
    """
    from minductor.core.expressions.expr import Symbol
    from minductor.frontend.capture.captured_graph import TensorMeta
    from minductor.ir.artefact.manifest import SymbolRange
    from minductor.ir.program.nodes import symbols_in
    from minductor.ir.program.size_sources import size_sources

    ranges: dict[Symbol, SymbolRange] = {}
    metas = [(n, graph.inputs[leaf.input].meta) for n, leaf in enumerate(found.inputs) if leaf.input is not None]
    for number, meta in metas:
        if isinstance(meta, Symbol):
            ranges.setdefault(meta, SymbolRange(meta.name, meta.lo, meta.hi, number, None, 1, 0))
    sizes = size_sources((number, meta.size) for number, meta in metas if isinstance(meta, TensorMeta))
    for s, where in sizes.items():
        ranges.setdefault(s, SymbolRange(s.name, s.lo, s.hi, *where))
    for number, meta in metas:
        for s in symbols_in(meta):
            if s not in ranges:
                raise NotExportable(leaves[number].name, f"no argument tells {s}, on which its layout depends")
    yield from ranges.values()
