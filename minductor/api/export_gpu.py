"""The part of a package that GPUs run: for each target the wrapper in C++, and the binaries of all its launches.

Takes the names of targets, a captured graph, and the texts for each target. Gives the graph on a GPU, and the entries
of the package. Refuses targets that are not all GPUs of NVIDIA (NotExportable). No GPU has to be in the machine: Triton
compiles for GPUs that are not there, and nothing is measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minductor.core.errors import BadArgument, NotExportable

if TYPE_CHECKING:
    from minductor.driver import Compiler
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.ir.artefact.manifest import GpuCode
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
    """The graph on the GPU on which the package will be loaded."""
    from minductor.frontend.graph_passes.retarget import retarget

    return retarget(graph, GPU)


def gpu_entries(
    compiled: Sequence[tuple[Env, Source, Plan]], compiler: Compiler, graph: Graph, gm: Any
) -> tuple[dict[str, bytes], tuple[GpuCode, ...]]:
    """The entries of a package for its GPUs, and what its manifest says of them.

    Args:
        compiled: for each target its Env, texts and plan.
        compiler: what builds them.
        graph: the graph that the plans are of.
        gm: its ATen graph, whose nodes have the user's lines.
    """
    from minductor.ir.artefact.manifest import GpuCode

    entries: dict[str, bytes] = {}
    codes: list[GpuCode] = []
    for env, source, plan in compiled:
        made = _files(env, source, plan, compiler, graph, gm)
        entries.update({f"{env.target.name}_{name}": data for name, data in made.items()})
        codes.append(GpuCode(env.target.name, compiler.artefacts.gpu.cuda_version(env.target.arch)))
    return entries, tuple(codes)


def _files(env: Env, source: Source, plan: Plan, compiler: Compiler, graph: Graph, gm: Any) -> Mapping[str, bytes]:
    """The plan, the texts and the machine code for one target, by the names of files."""
    from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches
    from minductor.ir.plan.plan_json import plan_json
    from minductor.runtime.launch.gpu import BINARIES, DESCRIPTOR
    from minductor.runtime.launch.launch import KERNELS
    from minductor.runtime.package.gpu_binaries import ALIGNED, ANY, any_pointer_launches, needed_launches, pack
    from minductor.runtime.package.package import PLAN

    gpu, arch = compiler.artefacts.gpu, env.target.arch
    with tempfile.TemporaryDirectory(prefix="minductor-") as folder:
        made = compiler.artefacts.build(source, plan, graph, env, gm, Path(folder), is_launched=True)
    files = {name: data for name, data in made.items() if name != BINARIES and not name.endswith(".cubin")}
    files[PLAN] = plan_json(plan).encode()
    if KERNELS in made:
        text, launches = made[KERNELS].decode(), default_launches(made[LAUNCHES].decode()).values()
        packed = [(ALIGNED, made), (ALIGNED, gpu.build(text, needed_launches(launches), arch))]
        if DESCRIPTOR not in text:  # such kernels are given copies instead
            symbols = [launch.symbol for launch in launches]
            packed.append((ANY, gpu.build(text, any_pointer_launches(launches), arch, symbols)))
        files.update(pack(packed))
    return files
