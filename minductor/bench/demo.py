"""`minductor demo`: trains a small character transformer twice, in eager and compiled, and compares.

Takes: a command line (`--steps`, `--batch`, `--backend`, `--size`). Gives: both losses, times, the kernels that were
generated and one of them in full; exit code 1 if the losses differ or minductor generated no kernel. Refuses: a project
without text to train on.

Both runs start from the same weights and see the same batches, so the losses must agree: to rounding at first, and
closely at the end, when rounding has had a hundred steps to grow.
"""

import argparse
import copy
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.bench.cases import unknown_backend
from minductor.bench.measure import compile_with
from minductor.bench.models import GPT, Transformer

# layers, width, heads, context
SIZES: Mapping[str, tuple[int, int, int, int]] = {"bench": (4, 256, 8, 128), "tiny": (1, 32, 2, 16)}
TEXT_LIMIT = 1_000_000
FIRST_STEPS = 10
FIRST_TOLERANCE = 1e-5
LAST_TOLERANCE = 1e-2
SHOWN = ("layer_norm", "gelu", "softmax")


@dataclass(frozen=True, slots=True)
class Corpus:
    """The text as character ids, and how many different characters there are."""

    ids: Tensor
    characters: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One generated function: its name, the file it is in, and its text with the comment above it."""

    name: str
    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Training:
    """The loss and the wall seconds of each step; the first step includes compiling."""

    losses: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def step_seconds(self) -> float:
        return statistics.median(self.seconds[1:] or self.seconds)

    @property
    def first_call_seconds(self) -> float:
        return max(0.0, self.seconds[0] - self.step_seconds)


def read_corpus(root: Path) -> Corpus:
    """The documentation and sources below `root`, in a fixed order."""
    package = Path(__file__).resolve().parents[1]
    files = [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("**/*.md")), *sorted(package.glob("**/*.py"))]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)[:TEXT_LIMIT]
    if len(text) < 10_000:
        raise ValueError(f"only {len(text)} characters of text below {root}: that is too little to train on")
    alphabet = {character: index for index, character in enumerate(sorted(set(text)))}
    return Corpus(torch.tensor([alphabet[character] for character in text]), len(alphabet))


def draw_batches(corpus: Corpus, steps: int, batch: int, context: int) -> list[tuple[Tensor, Tensor]]:
    """Random windows of the text, each with the characters that follow; the same at every call."""
    source = torch.Generator().manual_seed(0)
    found = []
    for _ in range(steps):
        starts = torch.randint(len(corpus.ids) - context, (batch,), generator=source)
        windows = torch.stack([corpus.ids[start : start + context + 1] for start in starts.tolist()])
        found.append((windows[:, :-1].contiguous(), windows[:, 1:].contiguous()))
    return found


def show_progress(label: str, done: int, total: int, loss: float) -> None:
    """A bar that is redrawn on a terminal, and a line every tenth of the way elsewhere."""
    filled = 30 * done // total
    line = f"{label:>10} [{'#' * filled}{'.' * (30 - filled)}] {done}/{total}  loss {loss:.4f}"
    if sys.stdout.isatty():
        print(f"\r{line}", end="\n" if done == total else "", flush=True)
    elif done == total or done % max(1, total // 10) == 0:
        print(line, flush=True)


def train(label: str, model: GPT, backend: str, batches: list[tuple[Tensor, Tensor]]) -> Training:
    """One run of Adam over the batches; the model is changed."""

    def loss_of(ids: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())

    step: Callable[[Tensor, Tensor], Tensor] = compile_with(backend, loss_of)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    losses: list[float] = []
    seconds: list[float] = []
    for ids, targets in batches:
        start = time.perf_counter()
        loss = step(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        show_progress(label, len(losses), len(batches), losses[-1])
    return Training(tuple(losses), tuple(seconds))


def cut_function(text: str, start: int) -> str:
    """From the comment above `start` to the brace that closes the function."""
    lines = text[:start].split("\n")
    while len(lines) > 1 and lines[-2].startswith("//"):
        lines.pop()
        start = len("\n".join(lines[:-1])) + (1 if len(lines) > 1 else 0)
    depth = 0
    for place in range(text.index("{", start), len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start : place + 1]
    return text[start:]


def generated_kernels(cache: Path) -> tuple[Kernel, ...]:
    """The C functions of every generated source below the cache folder."""
    found = []
    for path in sorted(cache.glob("**/*.cpp")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in re.finditer(r'^extern "C"[^;{}]*?\b(\w+)\s*\([^;{}()]*\)\s*\{', text, re.MULTILINE):
            found.append(Kernel(match[1], path, cut_function(text, match.start())))
    return tuple(found)


def choose(kernels: tuple[Kernel, ...]) -> Kernel:
    """The kernel that is printed: of those named after the first word of SHOWN that occurs, the shortest one."""
    for word in SHOWN:
        named = [kernel for kernel in kernels if word in kernel.name]
        if named:
            return min(named, key=lambda kernel: len(kernel.text))
    return kernels[0]


def compare(eager: Training, compiled: Training) -> list[tuple[str, float, float]]:
    """Rows of (text, largest relative difference, bound) for the losses that must agree. With a NaN, it is infinite."""
    pairs = zip(eager.losses, compiled.losses, strict=True)
    differences = [abs(a - b) / abs(a) if isfinite(a) and isfinite(b) and a else inf for a, b in pairs]
    first = differences[:FIRST_STEPS]
    return [
        (f"losses of steps 1 to {len(first)}", max(first), FIRST_TOLERANCE),
        (f"loss of step {len(differences)}", differences[-1], LAST_TOLERANCE),
    ]


def print_report(eager: Training, compiled: Training, backend: str) -> bool:
    """Print the figures and return whether the losses agree."""
    print(f"\n{'':>10}  first loss   last loss   ms/step")
    for label, run in (("eager", eager), (backend, compiled)):
        print(f"{label:>10}  {run.losses[0]:10.6f}  {run.losses[-1]:10.6f}  {run.step_seconds * 1e3:8.1f}")
    print(f"\ncompile time: {compiled.first_call_seconds:.1f} s (the first step beyond an ordinary one)")
    print(f"speed: {eager.step_seconds / compiled.step_seconds:.2f}x eager\n")
    is_close = True
    for text, difference, bound in compare(eager, compiled):
        is_met = difference <= bound
        is_close = is_close and is_met
        print(f"{text}: differ by {difference:.1e}, at most {bound:.0e}: {'OK' if is_met else 'NOT OK'}")
    return is_close


def print_kernels(cache: Path, backend: str) -> bool:
    """Prints the number of kernels and the text of one. Returns False if minductor generated none."""
    kernels = generated_kernels(cache)
    if not kernels:
        is_expected = backend != "minductor"
        print(f"kernels generated: none{'' if is_expected else ': NOT OK'}")
        return is_expected
    shown = choose(kernels)
    print(f"kernels generated: {len(kernels)} in {len({kernel.path for kernel in kernels})} files below {cache}")
    print(f"\none of them, {shown.name}, from {shown.path.relative_to(cache)}:\n\n{shown.text}")
    return True


def main(argv: list[str]) -> int:
    """The command. Exit code 1 says that the two runs disagree."""
    parser = argparse.ArgumentParser(prog="minductor demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", default="minductor", help="what to compare with eager (default %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="training steps (default %(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="texts a step (default %(default)s)")
    parser.add_argument("--size", choices=tuple(SIZES), default="bench", help="size of the model")
    given = parser.parse_args(argv)
    if given.steps < 1 or given.batch < 1:
        parser.error("at least one step and one text are needed")
    if problem := unknown_backend(given.backend):
        parser.error(problem)
    # Kept when the demo ends, so that the kernels can be read; fresh, so that compiling is part of what is shown.
    cache = Path(tempfile.mkdtemp(prefix="minductor_demo_"))
    os.environ["MINDUCTOR_CACHE_DIR"] = os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)

    corpus = read_corpus(Path(__file__).resolve().parents[2])
    layers, width, heads, context = SIZES[given.size]
    torch.manual_seed(0)
    model = GPT(Transformer(layers, width, heads, context, given.batch, corpus.characters))
    batches = draw_batches(corpus, given.steps, given.batch, context)
    print(
        f"A transformer of {layers} layers, width {width}, context {context} learns {len(corpus.ids)} characters "
        f"of this project's text.\n{given.steps} steps of Adam on {given.batch} texts each, in eager, then through "
        f"torch.compile(backend={given.backend!r}).\n"
    )
    eager = train("eager", copy.deepcopy(model), "eager", batches)
    compiled = train(given.backend, model, given.backend, batches)
    is_close = print_report(eager, compiled, given.backend)
    has_kernels = print_kernels(cache, given.backend)
    return 0 if is_close and has_kernels else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
