"""Makes several kernels of one whose reductions and scans would leave most of the machine idle.

Takes a Program. Gives it with the pieces of each kernel that was learned or is estimated to be faster cut than whole,
with the buffers between these pieces, and with a note for each cut, and for each kernel that was weighed and stays
whole; the same object if nothing is cut. Refuses nothing: a kernel that cannot be cut stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from minductor.analysis.both_ways import both_ways, reduced_groups
from minductor.core.expressions.hints import Hints
from minductor.cost.kernel_seconds import Prices, fastest, microseconds
from minductor.cost.shape import Shape
from minductor.heuristics.features import cut_features
from minductor.heuristics.learned import Answer, learned
from minductor.ir.program.choices import VARIANT, Choice, Point
from minductor.ir.program.nodes import Body, Buffer, Kernel, MergedKernel, Node, NodeNote, Program, Ref, Scan, Variant
from minductor.ir.program.signature import rename_storages
from minductor.ir.program.variant_note import VariantNote
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.rewriting.online import maximum_of, online
from minductor.passes.rewriting.prune import prune_body
from minductor.passes.rewriting.size_points import is_measured, size_points
from minductor.passes.rewriting.welford import welford
from minductor.passes.split.pieces import Pieces, cut_kernel
from minductor.passes.split.wanted_cut import Cut, held_cuts, possible_cuts
from minductor.target import Env

LEAST = 2  # launches of the pieces of a kernel, at least
NEAR = 1.3  # times the seconds of the faster way: a slower one is not measured, as of recipes (`ways.py`)
WHOLE, CUT = "whole", "cut"  # the variants: a kernel that is not cut, and its pieces


def split(program: Program, env: Env) -> Program:
    """The program with the long reductions and scans of its kernels in parts."""
    splitters = {program.hints: _Splitter(program, env, program.hints)}
    notes: list[NodeNote | VariantNote | MergedKernel] = []
    nodes: list[Node] = []
    buffers: list[Buffer] = []
    for node in program.nodes:
        found = _weighed(node, program, env, splitters, notes) if isinstance(node, Kernel) else None
        if isinstance(found, Pieces):
            nodes += found.kernels
            notes += _parts_of(found, splitters)
            buffers += found.buffers
        else:
            nodes.append(found or node)
    notes = [*(note for splitter in splitters.values() for note in splitter.notes), *notes]
    if not notes:
        return program
    return replace(program, nodes=tuple(nodes), buffers=(*program.buffers, *buffers), notes=(*program.notes, *notes))


def _parts_of(pieces: Pieces, splitters: Mapping[Hints, _Splitter]) -> Iterator[MergedKernel]:
    """A note for each piece of a kernel, but for the first one, which has the kernel's name."""
    name = pieces.kernels[0].name
    known = (note for splitter in splitters.values() for note in reversed(splitter.notes))
    figures = next((note.figures for note in known if isinstance(note, VariantNote) and note.kernel == name), "")
    for piece in pieces.kernels[1:]:
        yield MergedKernel("split", name, piece.name, "its rows are computed in parts", figures)


def _weighed(
    kernel: Kernel,
    program: Program,
    env: Env,
    splitters: dict[Hints, _Splitter],
    notes: list[NodeNote | VariantNote | MergedKernel],
) -> Pieces | Kernel | None:
    """The pieces of a kernel, or the kernel with its pieces as a variant; None if it stays as it is."""
    forced = env.options.variant_of(kernel.name)
    if forced and forced != CUT:
        return None
    usual = splitters[program.hints]
    points = None if forced else size_points(kernel, env, program.hints)
    if points is not None:
        each = {
            point: splitters.setdefault(hints, _Splitter(program, env, hints)).decision(kernel)
            for point, hints in points.hints.items()
        }
        return _by_points(kernel, {point: found.pieces for point, found in each.items() if found.is_cut}, len(each))
    found = usual.decision(kernel, may_ask=not forced and not env.options.autotune)
    if forced and found.pieces is None:
        notes.append(NodeNote("split", kernel.name, "the variant cut is not legal here"))
    if forced or found.pieces is None:
        return found.pieces
    if found.is_near and is_measured(kernel, env):
        return _with_pieces(kernel, {CUT: found.pieces}, CUT if found.is_cut else WHOLE)
    return found.pieces if found.is_cut else None


def _by_points(kernel: Kernel, cuts: Mapping[Point, Pieces | None], points: int) -> Pieces | Kernel | None:
    """The kernel with the pieces of each point at which it is cut, equal ones once; `points`: how many there are.

    The pieces alone if they are the same at every point; None if there are none.
    """
    found: dict[str, Pieces] = {}
    for point, pieces in cuts.items():
        if pieces is not None and pieces not in found.values():
            found[f"{CUT}_at_{'_'.join(map(str, point))}" if found else CUT] = pieces
    if len(found) == 1 and len(cuts) == points:
        return found[CUT]
    return _with_pieces(kernel, found, WHOLE) if found else None


def _with_pieces(kernel: Kernel, cuts: Mapping[str, Pieces], default: str) -> Kernel:
    """The kernel with its pieces as variants; the choice between them is made later."""
    choice = Choice(VARIANT, "bits", (WHOLE, *cuts), default)
    variants = tuple(_variant(name, pieces) for name, pieces in cuts.items())
    return replace(kernel, choices=(choice,), variants=variants)


def _variant(name: str, pieces: Pieces) -> Variant:
    """Pieces as a variant. Its buffers have names of their own, since those of another cut have other sizes."""
    suffix = name.removeprefix(CUT)
    refs = {Ref(b.name, 0): Ref(f"{b.name}{suffix}", 0) for b in pieces.buffers}
    buffers = tuple(replace(buffer, name=f"{buffer.name}{suffix}") for buffer in pieces.buffers)
    return Variant(name, buffers, tuple(rename_storages(kernel, refs) for kernel in pieces.kernels))


class _Way(NamedTuple):
    """One way to cut a kernel: the number of its form (`_Splitter.forms`), and of its cut.

    `is_held`: each part is meant to be held (`pieces.py: cut_kernel`).
    """

    form: int
    cut: int
    is_held: bool = False


class _Choice(NamedTuple):
    """The fastest way to cut, None if there is none; whether it is taken, or takes nearly as long; and figures."""

    way: _Way | None
    is_cut: bool = False
    is_near: bool = False
    figures: str = ""


class _Decision(NamedTuple):
    """The pieces of a kernel, None if it has none; whether they are taken, or take nearly as long."""

    pieces: Pieces | None
    is_cut: bool = False
    is_near: bool = False


class _Splitter:
    """Cuts the kernels of one program. `notes`: what it decided."""

    def __init__(self, program: Program, env: Env, hints: Hints) -> None:
        self.env, self.hints = env, hints
        self.table = dict(program.real_table())
        self.prices = Prices(self.table, env.target, hints, may_cut=False)
        self.notes: list[NodeNote | VariantNote] = []
        self.known: dict[tuple[Shape, tuple[Cut, ...], int, int], _Choice] = {}

    def decision(self, node: Kernel, *, may_ask: bool = False) -> _Decision:
        """The pieces of a kernel, and whether they are faster; a note says it.

        `may_ask`: what was learned decides, where it says something, and else prices.
        """
        kernel = self.simplified(node)
        if kernel is None:
            return _Decision(None)
        shape = self.prices.shape(kernel)
        if not all(shape.extents):
            return _Decision(None)
        cuts = possible_cuts(kernel, self.prices.sharers(shape), self.hints)
        usual = len(cuts)
        if self.env.target.is_gpu and _has_softmax(kernel.body):
            cuts += (cut for cut in held_cuts(kernel, self.hints) if cut not in cuts)
        if not cuts:
            return _Decision(None)
        nameless = shape._replace(touches=tuple(touch._replace(storage="") for touch in shape.touches))
        forms = self.forms(kernel)
        key = nameless, tuple(cuts), usual, len(forms)
        if key not in self.known:
            self.known[key] = self.choice(forms, shape, cuts, usual)
        way, is_cut, is_near, figures = self.known[key]
        made = None if way is None else self.cut(forms, cuts, way)
        if made is None or way is None:
            if figures:
                self.notes.append(NodeNote("split", node.name, _stays_whole(shape), figures))
            return _Decision(made, is_cut, is_near)
        parts = cuts[way.cut].parts(kernel, self.hints)
        if may_ask and not way.is_held and (answer := self.learned(kernel, parts)) is not None:
            if answer.option:
                by_learned = VariantNote("split", node.name, answer.option, "learned", (WHOLE, CUT), answer.note)
                self.notes.append(by_learned)
                return _Decision(made, answer.option == CUT, is_near)
            self.notes.append(NodeNote("split", node.name, answer.note))
        self.notes.append(VariantNote("split", node.name, CUT if is_cut else WHOLE, "cost", (WHOLE, CUT), figures))
        if is_cut:
            reason = "are longer than one program holds" if way.is_held else "are too few for the machine"
            text = f"{_rows(shape)} {reason}, so each is cut in {parts} parts"
            self.notes.append(NodeNote("split", made.kernels[0].name, text, figures))
        elif figures:
            self.notes.append(NodeNote("split", node.name, _stays_whole(shape), figures))
        return _Decision(made, is_cut, is_near)

    def learned(self, kernel: Kernel, parts: int) -> Answer | None:
        """What was learned for a kernel whose cheapest cut has so many parts."""
        return learned("cut", (WHOLE, CUT), partial(cut_features, kernel, self.table, self.hints, parts), self.env)

    def simplified(self, kernel: Kernel) -> Kernel | None:
        """The kernel without dead operations and with merged axes; None if there is nothing to cut.

        A reduction stays whole on a CPU, where threads share the parts of a row within one kernel.
        """
        if not (has_scan(kernel.body) or (self.env.target.is_gpu and reduced_groups(kernel.body))):
            return None
        return merge_kernel_axes(replace(kernel, body=prune_body(kernel.body)))

    def cut(self, forms: Sequence[Kernel], cuts: Sequence[Cut], way: _Way) -> Pieces | None:
        """The pieces of a kernel in one of the ways to cut it."""
        return cut_kernel(forms[way.form], cuts[way.cut], self.table, is_held=way.is_held)

    def choice(self, forms: Sequence[Kernel], shape: Shape, cuts: Sequence[Cut], usual: int) -> _Choice:
        """The fastest way to cut a kernel, given its forms, if it is faster than the whole kernel, given its shape.

        The first `usual` cuts are made of all forms; of an online softmax, parts that are held of each cut.
        """
        (whole,) = self.prices.seconds([[shape]])
        if max(whole) <= LEAST * self.prices.launch and not self.env.options.variant:
            return _Choice(None)
        ways: dict[str, _Way] = {}
        alike = [shape, *(self.prices.shape(form) for form in forms[:-1])]  # it may be scheduled in each of its forms
        shapes = {WHOLE: [min(alike, key=lambda one: max(*self.prices.seconds([[one]])))]}
        tried = [_Way(form, cut) for form in range(len(forms)) for cut in range(usual)]
        if self.env.target.is_gpu and len(forms) > 1 and _has_softmax(forms[1].body):
            tried += (_Way(0, cut, is_held=True) for cut in (*range(usual, len(cuts)), *range(usual)))
        for way in tried:
            made = self.cut(forms, cuts, way)
            if made is not None:
                self.table.update((buffer.name, buffer) for buffer in made.buffers)
                name = f"cut {way.cut} of form {way.form}{' held' if way.is_held else ''}"
                ways[name], shapes[name] = way, [self.prices.shape(piece) for piece in made.kernels]
        prices = dict(zip(shapes, self.prices.seconds(list(shapes.values())), strict=True))
        taken = fastest(prices)
        others = {name: each for name, each in prices.items() if name != WHOLE}
        if not others:
            return _Choice(None)
        best = fastest(others) if taken == WHOLE else taken
        parts = cuts[ways[best].cut].parts(forms[0], self.hints)
        slower, faster = (best, WHOLE) if taken == WHOLE else (WHOLE, best)
        at = max(range(len(prices[best])), key=lambda n: prices[slower][n] / prices[faster][n])
        figures = f"{microseconds(prices[WHOLE][at])} us whole, {microseconds(prices[best][at])} us in {parts} parts"
        is_near = prices[slower][at] <= NEAR * prices[faster][at]
        return _Choice(ways[best], taken != WHOLE, is_near, figures)

    def forms(self, kernel: Kernel) -> list[Kernel]:
        """The forms in which a kernel may be cut: with its passes over a row made one where that can be, and as it is.

        The statistics of one pass take more operations, and one reading less of the rows.
        """
        if not self.env.target.is_gpu or both_ways(kernel.body, kernel.axes) is not None:
            return [kernel]
        merged = welford(online(kernel, [axis.name for axis in kernel.axes]))
        return [kernel] if merged is kernel else [merged, kernel]


def _has_softmax(body: Body) -> bool:
    """Whether a body sums exp(x - maximum) over the row of that maximum."""
    return any(maximum_of(op, body.ops) is not None for op in body.ops)


def has_scan(body: Body) -> bool:
    """Whether a body scans a row."""
    return any(isinstance(op.attrs, Scan) for op in body.ops)


def _rows(shape: Shape) -> str:
    """The rows of a kernel that reduces or scans them, as text."""
    return f"{shape.points(shape.every & ~shape.joined)} rows of {shape.points(shape.joined)} elements"


def _stays_whole(shape: Shape) -> str:
    return f"{_rows(shape)} stay whole: in parts they would take longer"
