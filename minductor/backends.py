"""The kinds of device that minductor compiles for: a `Backend` for each, and the registry of them.

Takes the name of a kind; or the `Backend` of an out-of-tree device, from `register_backend` or from an installed
package with an entry point in the group `minductor.backends`. Gives the Backend, whose functions the driver calls.
Refuses a kind or target that exists already, and a Backend made for another version of this API.

Installed packages are searched only when somebody asks for a kind, target, device or option that is not known yet: a
compile for the CPU imports none of them. `docs/backends.md` explains how to write a backend.

>>> find_backend("cpu").wrappers["python"]
'minductor.codegen.wrapper.wrapper_python:wrapper_python'
>>> find_backend("cpv")
Traceback (most recent call last):
...
minductor.core.errors.BackendError: [MD005] no backend of kind 'cpv'
  hint: did you mean 'cpu'? The kinds are: cpu, interpret, cuda, hip.
"""

from __future__ import annotations

import hashlib
import importlib.util
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from minductor.backend_options import objection, rules_of, values_of
from minductor.core.errors import BackendError, BrokenBackend, suggestion
from minductor.core.warn import warn
from minductor.options import OptionRule, Options, check_extra
from minductor.pipeline import PIPELINE, Part, resolve
from minductor.target import TARGETS, Env, Target, by_name

if TYPE_CHECKING:
    from minductor.frontend.rewrites.rewrite_row import Rewrite

# What a backend may import of minductor: these names, minductor.core and minductor.ir.
__all__ = [
    "API_VERSION",
    "Artefact",
    "Backend",
    "Env",
    "OptionRule",
    "Part",
    "Pass",
    "Target",
    "cpp_flags",
    "register_backend",
    "unregister_backend",
]

# The version of this API that a `Backend` is written for. It grows by one when a name or a signature changes.
API_VERSION = 2
ENTRY_POINTS = "minductor.backends"
SOURCES = (".py", ".c", ".h", ".cpp", ".cu")  # the files of a package that decide what it generates

WRAPPERS: Mapping[str, Part] = MappingProxyType(
    {
        "python": "minductor.codegen.wrapper.wrapper_python:wrapper_python",
        "fx": "minductor.codegen.wrapper.wrapper_fx:wrapper_fx",
    }
)
_NATIVE: Mapping[str, Part] = MappingProxyType({**WRAPPERS, "cpp": "minductor.codegen.wrapper.wrapper_cpp:wrapper_cpp"})


class Artefact(Protocol):
    """The stored files of one graph, by name: those that `kernels` wrote and those that `build` made."""

    @property
    def contents(self) -> Mapping[str, bytes]:
        """The files' bytes by name."""
        ...

    def text(self, name: str) -> str:
        """The text of the file called `name`."""
        ...

    def file(self, name: str) -> Path:
        """The path of the file called `name`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A backend's pass: `function(value, env)` runs after the stage `after`, on the value that the stage gives.

    Args:
        name: the pass in traces and errors.
        after: the name of a stage of PIPELINE.
        function: a function, or "module:function" for one that is imported when it runs.
        fingerprint: a text that changes whenever the pass gives other programs; it is part of the store's key.
    """

    name: str
    after: str
    function: Part
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One kind of device: how its kernels are written, compiled and launched.

    A Part is a function, or "module:function" for one that is imported when it is used. No Part runs the user's
    function. Built-in kinds have no `probe`, `build`, `load` and `launch`: driver_tasks/artefacts.py does these.

    Args:
        kind: the name of the kind; the options of the backend are called "kind.option".
        targets: its machines; the first target of a device is taken if the user names none.
        probe: `() -> str`: describes the tools and the machine that the built files depend on. Raises BackendError if
            the device cannot be used here.
        kernels: `(plan, env) -> units`: the texts of the kernels, each a minductor.ir.artefact.source.Unit.
        build: `(units, folder, env) -> files`: the files to store, as bytes by name. See `cpp_flags`.
        load: `(artefact, env) -> library`: loads the stored files of one graph.
        launch: `(library, symbol) -> function` that takes tensors, sizes and a number of threads, launches the kernel,
            and returns a status; 0 means success.
        wrappers: `(plan, env) -> str` by language: the text of the wrapper.
        fx: `GraphModule -> callable`: what is called in place of a GraphModule, under options={"wrapper": "fx"}.
        options: a frozen dataclass whose values are the defaults, or a torch ConfigModule.
        passes: its passes.
        externs: an operator of ATen -> the operator that is called in its place.
        rewrites: rows for the table of graph rewrites, tried behind minductor's.
        capabilities: names that tests may ask for with @pytest.mark.needs.
        api_version: the API_VERSION that the backend is written for, as a number in its own source.
    """

    kind: str
    targets: tuple[Target, ...] = ()
    probe: Part | None = None
    kernels: Part
    build: Part | None = None
    load: Part | None = None
    launch: Part | None = None
    wrappers: Mapping[str, Part] = field(default_factory=lambda: WRAPPERS)
    fx: Part | None = None
    options: object = None
    passes: tuple[Pass, ...] = ()
    externs: Mapping[str, str] = field(default_factory=dict[str, str])
    rewrites: tuple[Rewrite, ...] = ()
    capabilities: tuple[str, ...] = ()
    api_version: int = 0


BUILT_IN: Mapping[str, Backend] = MappingProxyType(
    {
        "cpu": Backend(
            kind="cpu",
            kernels="minductor.codegen.cpp.cpp_kernels:cpp",
            wrappers=_NATIVE,
            capabilities=("bf16", "float64"),
        ),
        **{
            kind: Backend(
                kind=kind,
                kernels="minductor.codegen.triton.triton_kernels:triton",
                wrappers=_NATIVE if kind == "cuda" else WRAPPERS,
                capabilities=("bf16", "float64"),
            )
            for kind in ("interpret", "cuda", "hip")
        },
    }
)


@dataclass(frozen=True, slots=True)
class _Registry:
    """The registered backends of this process, by kind, and the entry points that were loaded: each is loaded once."""

    backends: dict[str, Backend] = field(default_factory=dict[str, Backend])
    tried: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  # (package, what it names)
    looking: RLock = field(default_factory=RLock)  # a second thread waits for what the first one finds


_REGISTRY = _Registry()


# --- questions -------------------------------------------------------------------------------------------------------


def kinds() -> tuple[str, ...]:
    """Every kind of device that has a backend, the built-in ones first."""
    _discover()
    return (*BUILT_IN, *_REGISTRY.backends)


def find_backend(kind: str) -> Backend:
    """The backend of a kind."""
    known = BUILT_IN.get(kind) or _REGISTRY.backends.get(kind)
    if known is not None:
        return known
    if kind not in kinds():
        raise BackendError(
            f"no backend of kind {kind!r}", hint=f"{suggestion(kind, kinds())}The kinds are: {', '.join(kinds())}."
        )
    return _REGISTRY.backends[kind]


def find_target(name: str) -> Target:
    """The target called `name`: a row of TARGETS, or a target of a registered backend."""
    if isinstance(name, str) and name in TARGETS:
        return TARGETS[name]
    _discover()
    return by_name(name, {**TARGETS, **{target.name: target for target in _brought()}})


def target_of_device(device: str) -> Target | None:
    """The first target of a registered backend whose kernels work on `device`, a type such as "cuda"; or None."""
    for is_last in (False, True):
        for target in _brought():
            if target.device == device:
                return target
        if not is_last:
            _discover()
    return None


def _brought() -> tuple[Target, ...]:
    return tuple(target for backend in _REGISTRY.backends.values() for target in backend.targets)


def check_backend_options(options: Options) -> None:
    """Raises if a backend does not know one of the options "kind.name", or does not take its value."""
    rules: dict[str, OptionRule] = {}
    for kind in dict.fromkeys(name.partition(".")[0] for name in options.backend_options):
        if kind in _REGISTRY.backends or kind in kinds():
            rules.update(rules_of(kind, find_backend(kind).options))
    check_extra(options, rules)


def rewrites_of(env: Env, devices: Iterable[str]) -> Sequence[Rewrite]:
    """The rewrites of the backend that compiles a graph: that of the target, if the user named one, or of a device.

    Args:
        env: the options, and the target that the user named.
        devices: the types of the graph's tensors, such as "cpu"; read only if the user named no target.
    """
    if env.options.target:
        return find_backend(env.target.kind).rewrites
    targets = [target_of_device(device) for device in devices if device not in ("cpu", "cuda", "meta")]
    return next((find_backend(target.kind).rewrites for target in targets if target is not None), ())


def options_for(backend: Backend, options: Options) -> Options:
    """`options` with each option of the backend: the user's value, or the default that the backend has now."""
    if backend.options is None and not options.extra:
        return options
    own = values_of(backend.kind, backend.options)
    return replace(options, extra=tuple((name, options.backend_options.get(name, value)) for name, value in own))


def fingerprint(backend: Backend) -> str:
    """A text for the store's key: what a registered backend's files depend on besides the graph and the options.

    It covers the result of `probe`, the targets, the fingerprints of the passes, the externs and the backend's source
    files. A function without a source file, as in a notebook, gets a new text each time. "" for a built-in kind.
    """
    if backend.probe is None:
        return ""
    targets = [replace(target, lacks=frozenset()) for target in backend.targets]
    lacks = [sorted(target.lacks) for target in backend.targets]
    passes = [(each.name, each.after, each.fingerprint) for each in backend.passes]
    facts = (resolve(backend.probe)(), targets, lacks, passes, sorted(backend.externs.items()))
    parts = (backend.probe, backend.kernels, backend.build, backend.load, backend.launch, backend.fx)
    parts = (*parts, *backend.wrappers.values(), *(each.function for each in backend.passes))
    modules = [part.partition(":")[0] if isinstance(part, str) else part.__module__ for part in parts if part]
    hashed = hashlib.sha256(repr(facts).encode())
    for module in dict.fromkeys(modules):
        for data in _texts(module):
            hashed.update(data)
    return hashed.hexdigest()


def _texts(module: str) -> Iterator[bytes]:
    """The contents of the source files of the package that holds `module`; none for minductor's own package."""
    package = module.partition(".")[0]
    if package == "minductor":
        return
    spec = importlib.util.find_spec(module) if package != "__main__" else None
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        yield uuid.uuid4().bytes
        return
    file = Path(spec.origin)
    depth = module.count(".") + (spec.submodule_search_locations is not None)
    files = sorted(file.parents[depth - 1].rglob("*")) if depth else [file]
    yield from (part for f in files if f.suffix in SOURCES for part in (f.name.encode(), f.read_bytes()))


def cpp_flags() -> tuple[str, ...]:
    """The compiler flags that a wrapper in C++ needs: minductor's headers and torch's libraries.

    The wrapper is one of the units that `build` is given. The file `kernels.so` that `build` makes has to hold wrapper
    and kernels; minductor loads it without `load` and `launch`.

    Returns:
        Flags to put behind the source files on the compiler's command line.
    """
    import torch

    from minductor.runtime.launch import launch_cpp_wrapper

    libraries = Path(torch.__file__).parent / "lib"
    return (f"-I{launch_cpp_wrapper.INCLUDE}", *(str(libraries / name) for name in launch_cpp_wrapper.LINKED))


# --- registering ------------------------------------------------------------------------------------------------------


def register_backend(backend: Backend) -> None:
    """Adds an out-of-tree device to this process. `unregister_backend` removes it.

    Args:
        backend: the record of the device. None of its functions is called now.

    Raises:
        BackendError: the kind or a target exists already, the record is for another API_VERSION, or a field is wrong.
    """
    why, hint = _objection(backend), "docs/backends.md lists the fields of a record, and what changed with each version"
    # setdefault decides between two threads that register the same kind.
    if not why and _REGISTRY.backends.setdefault(backend.kind, backend) is not backend:
        why, hint = "this kind is registered already", f"unregister_backend({backend.kind!r}) takes that one out"
    if why:
        name = backend.kind if isinstance(backend, Backend) else backend
        raise BackendError(f"cannot register backend {name!r}", why=why, hint=hint)


def unregister_backend(kind: str) -> None:
    """Removes a backend that `register_backend` or an installed package added; the package is not searched again.

    Args:
        kind: the kind of the backend.

    Raises:
        BackendError: no such backend is registered.
    """
    if _REGISTRY.backends.pop(kind, None) is None:
        names = ", ".join(_REGISTRY.backends) or "none"
        raise BackendError(f"backend {kind!r} is not registered", hint=f"The registered ones are: {names}.")


def _discover() -> None:
    """Registers the backends of installed packages, and warns of each package that fails."""
    with _REGISTRY.looking:
        for point in metadata.entry_points(group=ENTRY_POINTS):
            package = point.dist.name if point.dist else "an unknown package"
            if (package, point.value) in _REGISTRY.tried:
                continue
            _REGISTRY.tried.add((package, point.value))
            try:
                backend = point.load()
                if not isinstance(backend, Backend):
                    raise TypeError(f"{point.value} is a {type(backend).__name__} and no minductor.backends.Backend")
                register_backend(backend)
            except Exception as error:
                warn(BrokenBackend(package, point.name, error))


def _objection(backend: Any) -> str:
    if not isinstance(backend, Backend):
        return f"it is {_kind_of(backend)} and no minductor.backends.Backend"
    if backend.api_version != API_VERSION:
        made_for = f"is made for version {backend.api_version}" if backend.api_version else "states no version"
        return f"it {made_for} of the backend API, and this minductor has version {API_VERSION}"
    if not isinstance(backend.kind, str) or not backend.kind.isidentifier():
        return "a kind is an identifier"
    if backend.kind in BUILT_IN:
        return "this kind is built in"
    if missing := [part for part in ("targets", "probe", "build", "load", "launch") if not getattr(backend, part)]:
        return f"it has no {' and no '.join(missing)}"
    if misfit := _misfit(backend):
        return misfit
    for target in backend.targets:
        if target.kind != backend.kind:
            return f"its target {target.name!r} is of kind {target.kind!r}"
        if target.name in TARGETS or any(target.name == other.name for other in _brought()):
            return f"its target {target.name!r} exists already"
    return _pass_objection(backend.passes) or objection(backend.options)


def _kind_of(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of the type {type(value).__name__}"


def _misfit(backend: Backend) -> str:
    """A sentence about the first field whose value has the wrong type, or ""."""
    for name, kind in (("targets", Target), ("passes", Pass)):
        values: Any = getattr(backend, name)
        if not isinstance(values, tuple) or not all(isinstance(value, kind) for value in values):
            return f"its {name} are {values!r}, and no tuple of minductor.backends.{kind.__name__}"
    if not isinstance(backend.rewrites, tuple):
        return f"its rewrites are {backend.rewrites!r}, and no tuple of minductor.Rewrite"
    if backend.rewrites:
        from minductor.frontend.rewrites.rewrite_row import row_objection

        if wrong := next(filter(None, map(row_objection, backend.rewrites)), ""):
            return f"of its rewrites {wrong}"
    for name in ("wrappers", "externs"):
        if not isinstance(getattr(backend, name), Mapping):
            return f"its {name} are {getattr(backend, name)!r}, and no mapping"
    parts = {name: getattr(backend, name) for name in ("probe", "kernels", "build", "load", "launch", "fx")}
    parts |= {f"wrapper {name!r}": part for name, part in backend.wrappers.items()}
    parts |= {f"pass {each.name!r}": each.function for each in backend.passes}
    for name, part in parts.items():
        is_named = isinstance(part, str) and all(part.partition(":"))
        if part is not None and not is_named and (isinstance(part, str) or not callable(part)):
            return f"its {name} is {part!r}, and neither a function nor 'module:function'"
    return ""


def _pass_objection(passes: tuple[Pass, ...]) -> str:
    stages = [stage.name for stage in PIPELINE]
    for each in passes:
        if each.after not in stages:
            return f"its pass {each.name!r} runs after {each.after!r}; the stages are {', '.join(stages)}"
        if not each.fingerprint:
            return f"its pass {each.name!r} has no fingerprint"
    return ""
