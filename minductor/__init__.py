"""The public names of minductor, each loaded when it is first used.

Takes a name. Gives the object of that name, from the module that PUBLIC names. Refuses names that are not in PUBLIC.
`import minductor` loads neither torch nor any other part of minductor.

>>> import minductor
>>> minductor.Options.parse(mode="max-autotune", environ={}).autotune
True
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from minductor.version import __version__ as __version__

if TYPE_CHECKING:
    from minductor.api.compile_only import compile_only
    from minductor.api.explain import explain
    from minductor.api.export import export
    from minductor.api.to_fx import to_fx
    from minductor.backends import register_backend
    from minductor.core.errors import MinductorError, MinductorWarning
    from minductor.driver import Compiler
    from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, RewriteNote, Site
    from minductor.frontend.torch_graph.control_deps import add_control_deps, control_deps
    from minductor.ir.report.report import Report
    from minductor.options import Options
    from minductor.runtime.package.package import load

__all__ = [
    "Compiler",
    "MinductorError",
    "MinductorWarning",
    "Match",
    "Options",
    "Report",
    "Rewrite",
    "RewriteNote",
    "Site",
    "add_control_deps",
    "compile_only",
    "control_deps",
    "explain",
    "export",
    "load",
    "minductor",
    "register_backend",
    "to_fx",
]

PUBLIC: Mapping[str, str] = MappingProxyType(
    {
        "Compiler": "minductor.driver",
        "MinductorError": "minductor.core.errors",
        "MinductorWarning": "minductor.core.errors",
        "Match": "minductor.frontend.rewrites.rewrite_row",
        "Options": "minductor.options",
        "Report": "minductor.ir.report.report",
        "Rewrite": "minductor.frontend.rewrites.rewrite_row",
        "RewriteNote": "minductor.frontend.rewrites.rewrite_row",
        "Site": "minductor.frontend.rewrites.rewrite_row",
        "add_control_deps": "minductor.frontend.torch_graph.control_deps",
        "compile_only": "minductor.api.compile_only",
        "control_deps": "minductor.frontend.torch_graph.control_deps",
        "explain": "minductor.api.explain",
        "export": "minductor.api.export",
        "load": "minductor.runtime.package.package",
        "register_backend": "minductor.backends",
        "to_fx": "minductor.api.to_fx",
    }
)


def __getattr__(name: str) -> object:
    if name not in PUBLIC:
        raise AttributeError(f"module 'minductor' has no attribute {name!r}")
    return getattr(importlib.import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PUBLIC})


@functools.cache
def default_compiler() -> Compiler:
    """The Compiler behind torch.compile(backend="minductor"), made at the first call."""
    from minductor.driver import Compiler

    return Compiler()


class DefaultBackend:
    """The object behind torch.compile(backend="minductor"): it calls the default Compiler."""

    # No __slots__: Dynamo's registry writes `_tags` on the object. Dynamo reads the two names below.
    __name__ = "minductor"
    compiler_name = "minductor"

    def __call__(
        self, gm: Any, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, object] | None = None
    ) -> Callable[..., Any]:
        """Compiles a graph of Dynamo's, as `Compiler.__call__` does. The user's function is not run.

        Args:
            gm: the torch.fx.GraphModule that Dynamo traced.
            inputs: its example inputs.
            mode: a key of minductor.options.MODES; None means "default".
            options: values by option name; README.md lists the options.

        Returns:
            A callable of the graph's inputs that returns the graph's outputs.

        Raises:
            MinductorError: what was asked for does not exist, or the compile failed.
        """
        return default_compiler()(gm, inputs, mode=mode, options=options)

    def reset(self) -> None:
        """Forgets the default Compiler, as torch._dynamo.reset() asks; what its store holds on disk stays."""
        default_compiler.cache_clear()

    def get_compiler_config(self) -> dict[str, object]:
        """The options of a compile that names none, for torch's reports.

        Returns:
            Values by option name.
        """
        from dataclasses import asdict

        from minductor.options import Options

        return asdict(Options.parse())


minductor = DefaultBackend()
