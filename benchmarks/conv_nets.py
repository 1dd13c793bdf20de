"""Convolution nets in inference: minductor with and without its rewrites beside eager and TorchInductor.

Takes the names of nets (all if none), `--device`, `--dtype`, `--batch`, `--threads` and `--out FILE`, to which a row of
JSON is added for each case and form; cases that the file has are not run again. Gives a table of ratios: the seconds of
eager with contiguous tensors divided by those of each form, so more is better, and the geometric means. Rounds of all
forms are interleaved, and each figure is the median. `--quick` takes tiny nets and two rounds, to see that it runs:

    python benchmarks/conv_nets.py --device cuda --out rows.jsonl
    python benchmarks/conv_nets.py --device cpu --quick
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FORMS = ("eager", "eager-last", "inductor", "inductor-frozen", "minductor", "minductor-plain", "minductor-frozen")
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "plain": {"rewrites": "-channels_last"},
    "frozen": {"freeze": True},
    "clamping": {"freeze": True, "rewrites": "+clamping_post_ops"},
}
SAMPLE = 0.02  # seconds of one sample at least

# --- the nets


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, act: Any = nn.ReLU) -> Any:
    """A convolution with a batch norm, and an activation unless `act` is None."""
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([] if act is None else [act()]))


class Bottleneck(nn.Module):
    """The block of ResNet-50: 1x1, 3x3 and 1x1 around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.layers = nn.Sequential(
            convolution(inputs, width, 1),
            convolution(width, width, 3, stride),
            convolution(width, outputs, 1, act=None),
        )
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else convolution(inputs, outputs, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layers(x) + self.shortcut(x))


def resnet(width: int, depths: Sequence[int]) -> nn.Module:
    """A ResNet with bottlenecks: ResNet-50 is (64, (3, 4, 6, 3))."""
    layers: list[nn.Module] = [convolution(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            layers.append(Bottleneck(inputs, width << stage, 2 if stage and not block else 1))
            inputs = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Squeeze(nn.Module):
    """Channels scaled by what a small net makes of their means."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = max(width // 4, 8)
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, inner, 1), nn.ReLU(), nn.Conv2d(inner, width, 1), nn.Hardsigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.layers(x)


class Inverted(nn.Module):
    """The block of MobileNet: a 1x1 that widens, a depthwise one, perhaps a `Squeeze`, a 1x1 that narrows."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, act: Any, *, squeezes: bool) -> None:
        super().__init__()
        wide = 6 * inputs
        self.is_residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            convolution(inputs, wide, 1, act=act),
            convolution(wide, wide, size, stride, groups=wide, act=act),
            *([Squeeze(wide)] if squeezes else []),
            convolution(wide, outputs, 1, act=None),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


def mobilenet(widths: Sequence[int], depth: int, *, version: int) -> nn.Module:
    """MobileNet of version 2 (relu6, 3x3) or 3 (hardswish, 5x5 and squeezes in the deeper half)."""
    act: Any = nn.ReLU6 if version == 2 else nn.Hardswish
    layers: list[nn.Module] = [convolution(3, widths[0], 3, 2, act=act)]
    for stage, (inputs, outputs) in enumerate(pairwise(widths)):
        is_deep = version == 3 and 2 * stage >= len(widths) - 1
        for block in range(depth):
            given = (outputs if block else inputs, outputs, 5 if is_deep else 3, 2 if not block and stage != 3 else 1)
            layers.append(Inverted(*given, act, squeezes=is_deep))
    last = 4 * widths[-1]
    layers += [convolution(widths[-1], last, 1, act=act), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Halvings and doublings of the image, with the results of the same size concatenated."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.down = nn.ModuleList(map(self.double, [3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, 2) for n in widths[-2::-1])
        self.joined = nn.ModuleList(self.double(2 * n, n) for n in widths[-2::-1])
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def double(inputs: int, outputs: int) -> nn.Module:
        """Two 3x3 convolutions."""
        return nn.Sequential(convolution(inputs, outputs, 3), convolution(outputs, outputs, 3))

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, block, same in zip(self.up, self.joined, kept[-2::-1], strict=True):
            x = block(torch.cat((same, up(x)), 1))
        return self.head(x)


class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels of images."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """A depthwise 7x7 convolution, then a layer norm and an MLP over the channels, scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.scale * self.mlp(self.mix(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


def convnext(width: int, depths: Sequence[int]) -> nn.Module:
    """ConvNeXt; the tiny one of its authors is (96, (3, 3, 9, 3))."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), ChannelNorm(width, eps=1e-6)]
    for stage, depth in enumerate(depths):
        wide = width << stage
        layers += [ChannelNorm(wide // 2, eps=1e-6), nn.Conv2d(wide // 2, wide, 2, 2)] if stage else []
        layers += [ConvNextBlock(wide) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(wide), nn.Linear(wide, 1000))


# name -> the net and the side of its images; of a tiny one; and of one that suits a CPU
NETS: Mapping[str, Sequence[tuple[Callable[[], nn.Module], int]]] = {
    "resnet": (
        (partial(resnet, 64, (3, 4, 6, 3)), 224),
        (partial(resnet, 8, (1, 1)), 32),
        (partial(resnet, 32, (2, 2, 2, 2)), 128),
    ),
    "mobilenet_v2": (
        (partial(mobilenet, (32, 16, 24, 32, 64, 96, 160, 320), 2, version=2), 224),
        (partial(mobilenet, (8, 16), 1, version=2), 32),
        (partial(mobilenet, (16, 24, 32, 64, 96), 2, version=2), 128),
    ),
    "mobilenet_v3": (
        (partial(mobilenet, (16, 24, 40, 80, 112, 160), 3, version=3), 224),
        (partial(mobilenet, (8, 16, 24), 1, version=3), 32),
        (partial(mobilenet, (16, 24, 40, 80, 112), 2, version=3), 128),
    ),
    "unet": ((partial(UNet, 64, 5), 256), (partial(UNet, 4, 2), 32), (partial(UNet, 16, 4), 96)),
    "convnext": (
        (partial(convnext, 96, (3, 3, 9, 3)), 224),
        (partial(convnext, 8, (1, 1)), 32),
        (partial(convnext, 48, (2, 2, 4)), 128),
    ),
}


# --- measuring


def compiled(form: str, net: nn.Module) -> Any:
    """The net as one form runs it."""
    kind, _, how = form.partition("-")
    if kind == "eager":
        return net.to(memory_format=torch.channels_last) if how else net
    if kind == "inductor":
        return torch.compile(net, backend=freezing_inductor if how == "frozen" else "inductor")
    return torch.compile(net, backend="minductor", options=dict(OPTIONS[how]))


def freezing_inductor(gm: Any, inputs: Sequence[Any]) -> Any:
    """TorchInductor with its switch for frozen weights."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    with config.patch(freezing=True):
        return compile_fx(gm, inputs)


def prepared(form: str, net: nn.Module, images: Tensor, context: Callable[[], Any]) -> tuple[Callable[[], Any], float]:
    """A function that runs a form once, and the seconds of its first call."""
    own = copy.deepcopy(net)
    given = images.to(memory_format=torch.channels_last) if form == "eager-last" else images
    function = compiled(form, own)

    def run() -> Any:
        with torch.no_grad(), context():
            return function(given)

    start = time.perf_counter()
    run()
    return run, time.perf_counter() - start


def seconds(run: Callable[[], Any], calls: int, device: str) -> float:
    """Seconds of one call: on a GPU by its events, with one thread by the processor's clock, else by the wall's."""
    if device == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / calls
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def measure(case: Mapping[str, Any], forms: Sequence[str], rounds: int, scale: int) -> Iterator[dict[str, Any]]:
    """A row for each form of one case."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    device: str = case["device"]
    build, side = NETS[case["net"]][scale]
    net = build().eval().to(device)
    images = torch.randn(case["batch"], 3, side, side, device=device)
    is_wide = case["dtype"] == "float32"
    context = nullcontext if is_wide else partial(torch.autocast, device, dtype=torch.bfloat16)
    runs: dict[str, Callable[[], Any]] = {}
    found: dict[str, dict[str, Any]] = {form: {**case, "form": form} for form in forms}
    for form in forms:
        try:
            runs[form], found[form]["first"] = prepared(form, net, images, context)
        except Exception as error:
            found[form]["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    calls = {form: max(1, math.ceil(SAMPLE / max(seconds(run, 2, device), 1e-6))) for form, run in runs.items()}
    samples: dict[str, list[float]] = {form: [] for form in runs}
    for _ in range(rounds):
        for form, run in runs.items():
            samples[form].append(seconds(run, calls[form], device))
    wanted = runs["eager"]().float()
    for form, run in runs.items():
        error = (run().float() - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6)
        found[form] |= {"seconds": statistics.median(samples[form]), "difference": error.item()}
    yield from found.values()


# --- rows and tables

KEY = ("device", "net", "dtype", "batch", "threads")


def table(rows: Sequence[Mapping[str, Any]], forms: Sequence[str]) -> str:
    """Ratios to eager by case, and geometric means."""
    cases: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        cases.setdefault(tuple(row[name] for name in KEY), {})[row["form"]] = row.get("seconds", math.nan)
    lines = [f"{'case':44}" + "".join(f"{form:>18}" for form in forms)]
    ratios: dict[str, list[float]] = {form: [] for form in forms}
    for key, by_form in cases.items():
        shown = f"{by_form['eager'] * 1e3:.2f} ms"
        for form in forms:
            ratio = by_form["eager"] / by_form.get(form, math.nan)
            ratios[form] += [] if math.isnan(ratio) else [ratio]
        cells = [shown, *(f"{by_form['eager'] / by_form.get(form, math.nan):.2f}" for form in forms[1:])]
        lines.append(f"{' '.join(map(str, key)):44}" + "".join(f"{cell:>18}" for cell in cells))
    means = [statistics.geometric_mean(found) if found else math.nan for found in ratios.values()]
    return "\n".join([*lines, f"{'geometric mean':44}" + "".join(f"{mean:>18.3f}" for mean in means)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", help=f"of {', '.join(NETS)}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 16])
    parser.add_argument("--threads", nargs="*", type=int, default=[torch.get_num_threads()])
    parser.add_argument("--forms", nargs="*", default=list(FORMS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("conv_nets.jsonl"))
    parser.add_argument("--quick", action="store_true", help="tiny nets, two rounds, and no file")
    asked = parser.parse_args()
    is_kept = not asked.quick
    rows = [json.loads(line) for line in asked.out.read_text().splitlines()] if is_kept and asked.out.exists() else []
    done = {tuple(row[name] for name in KEY) for row in rows}
    scale = 1 if asked.quick else 2 if asked.device == "cpu" else 0
    for net in asked.nets or NETS:
        for dtype in asked.dtype:
            for batch in asked.batch:
                for threads in asked.threads:
                    case = dict(zip(KEY, (asked.device, net, dtype, batch, threads), strict=True))
                    if tuple(case.values()) in done:
                        continue
                    torch.set_num_threads(threads)
                    made = list(measure(case, asked.forms, 2 if asked.quick else asked.rounds, scale))
                    rows += made
                    for row in made:
                        print(row, flush=True)
                    if is_kept:
                        with asked.out.open("a") as file:
                            file.writelines(json.dumps(row) + "\n" for row in made)
    print(table(rows, asked.forms))


if __name__ == "__main__":
    main()
