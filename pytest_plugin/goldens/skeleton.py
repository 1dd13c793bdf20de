"""The skeleton of generated text: what touches memory or threads, in order and nesting, and nothing else.

Takes a text, its language, and its view. Gives lines: the loads, stores, dots, reductions, scans, atomics and barriers
of a kernel; the calls, frees and results of a wrapper; the kinds of statements of an IR. It has no names, arithmetic or
sizes, so most changes of a code generator leave it as it is. Refuses Python that does not parse (SyntaxError).

>>> text = "void k(const float* a, float* b) { for (int i = 0; i < 8; ++i) { b[i] = md_exp_f32(a[i]) + a[0]; } }"
>>> print("\\n".join(skeleton(text, "cpp")))
kernel
  for
    store load load
>>> text = "@triton.jit\\ndef k(a, b):\\n    x = tl.load(a)\\n    tl.store(b, tl.sum(x, 0))"
>>> print("\\n".join(skeleton(text, "py")))
kernel
  load reduce store
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pytest_plugin.goldens.canonical import CPP, canonical

# What a called function does to memory or threads, by the last part of its name. Other functions only compute.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("load", "loadu", "load_tensor_descriptor", "gather"), "load"),
        **dict.fromkeys(("store", "store_tensor_descriptor", "scatter"), "store"),
        **dict.fromkeys(("dot", "dot_scaled"), "dot"),
        **dict.fromkeys(("sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "reduce_or"), "reduce"),
        **dict.fromkeys(("max2", "min2", "any", "all", "prod", "max_with_index", "min_with_index"), "reduce"),
        **dict.fromkeys(("md_index_max", "md_index_min", "vec_reduce_all", "md_join_lanes", "md_join_rows"), "reduce"),
        **dict.fromkeys(("welford", "welford_reduce", "welford_combine"), "welford"),
        **dict.fromkeys(("associative_scan", "cumsum", "cumprod"), "scan"),
        **dict.fromkeys(("sort", "topk"), "sort"),
        **dict.fromkeys(("debug_barrier", "barrier"), "barrier"),
        "device_assert": "assert",
        "make_block_ptr": "block_pointer",
        "make_tensor_descriptor": "descriptor",
    }
)
# Functions that call their lambda in a loop.
BLOCKS: Mapping[str, str] = MappingProxyType(
    {"md_lanes": "lanes", "md_checked_lanes": "lanes", "md_rows": "rows", "md_groups": "groups"}
)
ASSIGNS = ("=", "+=", "-=", "*=", "/=", "|=", "&=", "^=")


@dataclass(slots=True)
class Block:
    """A loop, branch or function, and the words and blocks inside it."""

    head: str
    items: list[str | Block] = field(default_factory=list["str | Block"])

    def lines(self, indent: str = "") -> Iterator[str]:
        """Yields the block's head, and its inside indented by two blanks."""
        yield indent + self.head
        yield from self.body(indent + "  ")

    def body(self, indent: str) -> Iterator[str]:
        """Yields the lines inside the block; words without a block between them share a line."""
        words: list[str] = []
        for item in self.items:
            if isinstance(item, str):
                words.append(item)
                continue
            if words:
                yield indent + " ".join(words)
                words = []
            yield from item.lines(indent)
        if words:
            yield indent + " ".join(words)


def skeleton(text: str, language: str, view: str = "kernel") -> tuple[str, ...]:
    """Returns the lines of the skeleton, nested by two blanks."""
    match language:
        case "cpp":
            found = _Cpp(text).top
        case "py":
            found = Block("")
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef):
                    _Python(is_kernel=_is_kernel(node), is_wrapper=view == "wrapper").add(node, found)
        case "ir":
            return tuple(_statement(line.text) for line in canonical(text, language))
        case _:
            return tuple(line.text for line in canonical(text, language))
    return tuple(found.body(""))


def _statement(line: str) -> str:
    """Returns the kind of an IR's statement: its first word, and the name of an operator of torch."""
    indent = line[: len(line) - len(line.lstrip())]
    words = re.sub(r"^[%$]\S+ = ", "", line.lstrip()).split()
    operator = next((word.partition("(")[0] for word in words if "." in word.partition("(")[0]), "")
    kept = [words[0]] if words else []
    return indent + " ".join([*kept, *([operator] if words and words[0] == "extern" and operator else [])])


# --- Python


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)


@dataclass(frozen=True, slots=True)
class _Python:
    """Visits statements in the order in which they run."""

    is_kernel: bool
    is_wrapper: bool

    def add(self, node: ast.AST, into: Block) -> None:
        match node:
            case ast.FunctionDef():
                self._block("kernel" if self.is_kernel else "function", node.body, into, keep=True)
            case ast.For():
                self._expression(node.iter, into)
                self._block("for", node.body, into)
            case ast.While():
                self._expression(node.test, into)
                self._block("while", node.body, into)
            case ast.If():
                self._expression(node.test, into)
                self._block("if", node.body, into)
                self._block("else", node.orelse, into)
            case ast.With():
                for item in node.items:
                    self._expression(item.context_expr, into)
                self._block("with", node.body, into)
            case ast.Try():
                self._block("try", node.body, into)
                for handler in node.handlers:
                    self._block("except", handler.body, into)
                self._block("else", node.orelse, into)
                self._block("finally", node.finalbody, into)
            case ast.Delete():
                into.items += [] if self.is_kernel else ["del"] * len(node.targets)
            case ast.Return():
                self._expression(node, into)
                into.items += [] if self.is_kernel else ["return"]
            case ast.stmt():
                self._expression(node, into)
            case _:
                pass

    def _block(self, head: str, body: list[ast.stmt], into: Block, *, keep: bool = False) -> None:
        block = Block(head)
        for statement in body:
            self.add(statement, block)
        if block.items or keep:
            into.items.append(block)

    def _expression(self, node: ast.AST, into: Block) -> None:
        """Visits the operands of an expression before its operation."""
        for child in ast.iter_child_nodes(node):
            self._expression(child, into)
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            if word := self._word(name, node):
                into.items.append(word)
        elif isinstance(node, ast.BinOp) and not (self.is_kernel or self.is_wrapper):
            into.items.append(type(node.op).__name__.lower())

    def _word(self, name: str, call: ast.Call) -> str:
        if self.is_kernel:
            return "atomic" if name.startswith("atomic_") else WORDS.get(name, "")
        if self.is_wrapper and ast.unparse(call.func).startswith("events."):
            return ""  # reports of checks that a run makes about itself are not compared
        return re.sub(r"\d+$", "#", name)


# --- C++


@dataclass(slots=True)
class _Open:
    """An open brace or parenthesis, and the block that its end closes."""

    mark: str
    name: str = ""
    block: Block | None = None


class _Cpp:
    """Reads the tokens once, and adds words in the order of the text."""

    def __init__(self, text: str) -> None:
        self.top = Block("")
        self.blocks = [self.top]
        self.open: list[_Open] = []
        self.pointers: set[str] = set()
        self.tokens = [(str(f.lastgroup), f[0]) for f in CPP.finditer(text) if f.lastgroup not in ("comment", "space")]
        self.pending = ""  # the loop or branch whose header has just ended
        self.statement: list[int] = []  # the number of open braces where each block without braces began
        for position in range(len(self.tokens)):
            self._step(position)

    def _token(self, position: int) -> str:
        return self.tokens[position][1] if 0 <= position < len(self.tokens) else ""

    def _step(self, position: int) -> None:
        kind, token = self.tokens[position]
        if kind == "pragma":
            words = [word for word in ("parallel", "simd", "atomic", "barrier") if word in token.split()]
            self.blocks[-1].items += words
            return
        if self.pending and token != "{":
            self._enter(self.pending)
            self.statement.append(len(self.open))
        if self.pending and token == "{":
            self.open.append(_Open("{", block=self._enter(self.pending)))
        elif kind == "name":
            self._name(position, token)
        elif token in "([{" or (token == "<" and self._is_template(position)):
            self._opened(position, token)
        elif token in ")]}" or (token == ">" and self.open and self.open[-1].mark == "<"):
            self._closed(token)
        elif token == ";" and self.statement and self.statement[-1] == len(self.open):
            while self.statement and self.statement[-1] == len(self.open):
                self.statement.pop()
                self._leave()
        self.pending = self._header_ended(position)

    def _header_ended(self, position: int) -> str:
        """Returns the loop or branch whose body begins after this token."""
        token = self._token(position)
        if token in ("else", "do") and self._token(position + 1) != "if":
            return token
        if token == ")" and self.closed in ("for", "while", "if", "switch") and self._token(position + 1) != ";":
            return self.closed
        return ""

    closed = ""  # what the last parenthesis belonged to

    def _opened(self, position: int, token: str) -> None:
        before = self._token(position - 1)
        if token == "(" and before == ">":
            before = self.closed
        if token == "{" and any(o.mark == "(" for o in self.open):
            caller = next(o.name for o in reversed(self.open) if o.mark == "(")
            self.open.append(_Open("{", block=self._enter(BLOCKS.get(caller, "lambda"))))
        elif token == "{" and not self.open and self._is_function(position):
            self.open.append(_Open("{", block=self._enter("kernel")))
        else:
            self.open.append(_Open(token, before))

    def _closed(self, token: str) -> None:
        if not self.open:
            return
        done = self.open.pop()
        self.closed = done.name
        if done.block is not None:
            self._leave()
        while token == "}" and self.statement and self.statement[-1] == len(self.open):
            self.statement.pop()
            self._leave()

    def _is_function(self, position: int) -> bool:
        return self._token(position - 1) in (")", "noexcept")

    def _is_template(self, position: int) -> bool:
        """Tells whether a "<" opens template arguments: those of a called function, up to the matching ">"."""
        for ahead in range(position + 1, min(position + 16, len(self.tokens))):
            token = self._token(ahead)
            if token == ">":
                return self._token(ahead + 1) in ("(", "::")
            if token in (";", "{", "}", "(", ")", "&&", "||"):
                return False
        return False

    def _name(self, position: int, token: str) -> None:
        after = self._token(position + 1)
        if self._is_parameter(position):
            self.pointers.add(token)
        elif token in self.pointers and after == "[":
            self.blocks[-1].items.append("store" if self._behind_brackets(position + 1) in ASSIGNS else "load")
        elif after in ("(", "<"):
            word = "atomic" if token.startswith("atomic_") else WORDS.get(token, "")
            self.blocks[-1].items += [word] if word else []

    def _is_parameter(self, position: int) -> bool:
        """Tells whether a pointer is declared outside all braces."""
        if any(opened.mark == "{" for opened in self.open) or not self.open:
            return False
        return self._token(position - 1) == "*" or self._token(position - 2) == "*"

    def _behind_brackets(self, position: int) -> str:
        depth = 0
        for ahead in range(position, len(self.tokens)):
            depth += (self._token(ahead) == "[") - (self._token(ahead) == "]")
            if depth == 0:
                return self._token(ahead + 1)
        return ""

    def _enter(self, head: str) -> Block:
        block = Block(head)
        self.blocks[-1].items.append(block)
        self.blocks.append(block)
        return block

    def _leave(self) -> None:
        done = self.blocks.pop()
        if not done.items and done.head != "kernel":
            self.blocks[-1].items.remove(done)
        if done.head == "kernel":
            self.pointers.clear()
