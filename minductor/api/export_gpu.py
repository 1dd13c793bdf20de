"""The part of a package that GPUs run: for each target the wrapper in C++, and the binaries of all its launches.

Takes the names of targets, a captured graph, and the texts for each target. Gives the graph on a GPU, and the entries
of the package. Refuses targets that are not all GPUs of NVIDIA (NotExportable). No GPU has to be in the machine: Triton
compiles for GPUs that are not there, and nothing is measured.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minductor.core.errors import BadArgument, NotExportable

if TYPE_CHECKING:
    from minductor.codegen.wrapper.wrapper_cpp_package import PackedBinary
    from minductor.driver import Compiler
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.ir.artefact.launch_metadata import LaunchMetadata
    from minductor.ir.artefact.manifest import GpuCode, Manifest
    from minductor.ir.artefact.source import Source
    from minductor.ir.plan.plan import Plan
    from minductor.target import Env, Target

GPU = "cuda"  # of a graph in a package: the GPU on which the package is loaded


def gpu_targets(target: object, option: object) -> tuple[Target, ...]:
    """The GPU targets that a program is exported for, each once; none for the CPU.

    Args:
        target: the argument of `export`: a name, several names, or None.
        option: the option "target", or None.
    """
    from minductor.backends import find_target

    if target is not None and option not in (None, "", target):
        raise BadArgument("options of export", {"target": option}, "the target as an argument: export(..., target=...)")
    asked = option if target is None else target
    if asked is None or asked == "":
        return ()
    names: Any = (asked,) if isinstance(asked, str) else asked
    if not isinstance(names, (tuple, list)) or not names or not all(isinstance(name, str) for name in names):
        raise BadArgument("the target of export", target, "the name of a target, or several: ('sm_80', 'sm_90')")
    found = [find_target(name) for name in dict.fromkeys(names)]
    if [each.kind for each in found] == ["cpu"]:
        return ()
    for each in found:
        if each.kind != "cuda":
            why = "a package runs on the CPU or on GPUs of NVIDIA, not on both"
            raise NotExportable(f"a program for {each.name}", why, hint="export one package for each kind of device")
    return tuple(found)


def gpu_graph(graph: Graph) -> Graph:
    """The graph on the GPU on which the package will be loaded. Raises NotExportable if an operator has no GPU form."""
    from minductor.frontend.graph_passes.gpu_attention import GPU_OPERATORS
    from minductor.frontend.graph_passes.retarget import retarget

    moved = retarget(graph, GPU)
    if (left := next((node for node in moved.nodes if node.op in GPU_OPERATORS), None)) is not None:
        hint = "export it in float32, or write attention as products and a softmax"
        raise NotExportable(left.name, "it is attention in float64, for which torch has no operator on GPUs", hint=hint)
    return moved


def gpu_entries(
    compiled: Sequence[tuple[Env, Source, Plan]], compiler: Compiler, graph: Graph, manifest: Manifest
) -> tuple[dict[str, bytes], tuple[GpuCode, ...]]:
    """The entries of a package for its GPUs, and what its manifest says of them.

    Args:
        compiled: for each target its Env, texts and plan.
        compiler: what builds them.
        graph: the graph that the plans are of.
        manifest: the manifest of the package so far.
    """
    from minductor.ir.artefact.manifest import GpuCode
    from minductor.runtime.launch.launch import LIBRARY

    entries: dict[str, bytes] = {}
    codes: list[GpuCode] = []
    for env, source, plan in compiled:
        cuda = compiler.artefacts.gpu.cuda_version(env.target.arch)
        made = _files(env, source, plan, compiler, graph, manifest, cuda)
        entries.update({f"{env.target.name}_{name}": data for name, data in made.items()})
        library = "" if _needs_python(source) else f"{env.target.name}_{LIBRARY}"
        codes.append(GpuCode(env.target.name, cuda, library))
    return entries, tuple(codes)


def _needs_python(source: Source) -> bool:
    return "\nMD_PYTHON(" in source.wrapper


def _files(
    env: Env, source: Source, plan: Plan, compiler: Compiler, graph: Graph, manifest: Manifest, cuda: str
) -> Mapping[str, bytes]:
    """The plan, the texts and the machine code for one target, by the names of files. `cuda`: as in GpuCode.

    The wrapper runs on every processor of this one's kind: the machine with the GPU may have another.
    """
    from minductor.codegen.wrapper.wrapper_cpp_package import PackedCode, package_cpp
    from minductor.ir.artefact.launch_metadata import LAUNCHES, read_launches
    from minductor.ir.plan.plan_json import plan_json
    from minductor.runtime.launch.launch import KERNELS, build
    from minductor.runtime.package.gpu_binaries import CODE, pack
    from minductor.runtime.package.package import PLAN

    texts = {unit.file: unit.text for unit in source.units}
    launches = read_launches(texts.get(LAUNCHES, ""))
    built = _binaries(compiler, texts, plan, graph, env.target.arch) if KERNELS in texts else []
    packed = pack([(role, files) for role, _, files in built])
    if not _needs_python(source):
        rows, kinds = _packed_code(plan, launches, built, packed)
        code = PackedCode(f"{env.target.name}_{CODE}", cuda, rows, kinds)
        source = replace(source, wrapper=source.wrapper + package_cpp(manifest, code))
    with tempfile.TemporaryDirectory(prefix="minductor-") as folder:
        toolchain, options = compiler.artefacts.toolchain.portable(), replace(env.options, sanitize=False)
        made = build(source, toolchain, Path(folder), options, user_lines=lambda symbol: "")
    return {**made, PLAN: plan_json(plan).encode(), **packed}


def _binaries(
    compiler: Compiler, texts: Mapping[str, str], plan: Plan, graph: Graph, arch: str
) -> list[tuple[str, Sequence[LaunchMetadata], Mapping[str, bytes]]]:
    """All binaries that calls may need: for pointers of a role, the launches and their files.

    They stand in the order in which a host tries them.
    """
    from minductor.ir.artefact.launch_metadata import LAUNCHES, read_launches
    from minductor.runtime.launch.gpu import DESCRIPTOR
    from minductor.runtime.launch.launch import KERNELS
    from minductor.runtime.package.gpu_binaries import ALIGNED, ANY, any_pointer_launches, needed_launches

    text, launches, gpu = texts[KERNELS], read_launches(texts[LAUNCHES]), compiler.artefacts.gpu
    others, any_pointers = tuple(needed_launches(launches)), tuple(any_pointer_launches(launches))
    made = compiler.artefacts.build_kernels(text, texts[LAUNCHES], plan, graph, arch)
    found: list[tuple[str, Sequence[LaunchMetadata], Mapping[str, bytes]]] = [(ALIGNED, launches, made)]
    found.append((ALIGNED, others, gpu.build(text, others, arch)))
    if DESCRIPTOR not in text:  # such kernels are given copies instead
        symbols = [launch.symbol for launch in launches]
        found.append((ANY, any_pointers, gpu.build(text, any_pointers, arch, symbols)))
    return found


def _packed_code(
    plan: Plan,
    launches: Sequence[LaunchMetadata],
    built: Sequence[tuple[str, Sequence[LaunchMetadata], Mapping[str, bytes]]],
    packed: Mapping[str, bytes],
) -> tuple[list[PackedBinary], list[str]]:
    """The binaries as a host in C loads them, and a letter for each argument of each kernel."""
    from minductor.codegen.wrapper.wrapper_cpp_package import PackedBinary
    from minductor.ir.plan.plan import KernelLine
    from minductor.runtime.launch.gpu import Binary, kind_letters, launch_of
    from minductor.runtime.package.gpu_binaries import TABLE

    symbols = [line.symbol for line in plan.lines if isinstance(line, KernelLine)]
    default, table = {launch.symbol: launch for launch in launches}, json.loads(packed[TABLE])
    rows: list[PackedBinary] = []
    for role, metadatas, _ in built:
        for metadata in metadatas:
            row = dict(table[role][metadata.name])
            place = symbols.index(metadata.symbol), row.pop("offset"), row.pop("bytes")
            binary = Binary(**row)
            made = launch_of(metadata, binary)
            counted = (made.kinds, made.programs, made.greatest_index, made.threads, made.shared, made.is_aligned)
            rows.append(PackedBinary(*place, made.entry, *counted, binary.scratch, metadata.has_counter))
    return rows, [kind_letters(default[symbol]) for symbol in symbols]
