"""The imports between files, and the circles among them.

Takes the texts of files by their paths below the root. Gives circles: lists of modules, or of a folder's files and
sub-packages, each of which imports the next one. Refuses nothing. Every import counts: in functions and for the type
checker too, since a reader follows these as well.
"""

import ast
from collections.abc import Iterable, Mapping

from tests.house.rules import imported_names, module_name

Imports = Mapping[str, set[str]]


def file_imports(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules among `texts` that each module imports."""
    modules = {module_name(path) for path in texts}
    found: dict[str, set[str]] = {}
    for path, text in texts.items():
        module = module_name(path)
        named = (name for node in ast.walk(ast.parse(text)) for name in imported_names(node, path))
        # `from a import b` names the module a.b, or the name b of the module a
        meant = (name if name in modules else name.rpartition(".")[0] for name in named)
        found[module] = {name for name in meant if name in modules and name != module}
    return found


def folder_imports(imports: Imports, folder: str) -> dict[str, set[str]]:
    """The same between a package's files and sub-packages. Each sub-package counts as one; `__init__` is a file."""

    def entry(module: str) -> str:
        if module == folder:
            return f"{folder}.__init__"
        return ".".join(module.split(".")[: folder.count(".") + 2]) if module.startswith(f"{folder}.") else ""

    found: dict[str, set[str]] = {}
    for module, others in imports.items():
        if here := entry(module):
            found.setdefault(here, set()).update(there for other in others if (there := entry(other)) not in ("", here))
    return found


def circles(imports: Imports) -> list[list[str]]:
    """The groups of modules each of which leads to every other one (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(imports.get(module, ())):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            members = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(members) > 1:
                found.append(sorted(members))

    for module in sorted(imports):
        if module not in number:
            visit(module)
    return found


def packages(modules: Iterable[str]) -> list[str]:
    """Every package that holds one of the modules."""
    parts = [module.split(".") for module in modules]
    return sorted({".".join(names[:depth]) for names in parts for depth in range(1, len(names))})
