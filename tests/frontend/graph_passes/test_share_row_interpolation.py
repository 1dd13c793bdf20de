"""Bilinear resizing sums each image row once on a CPU; for a GPU the graph stays."""

from __future__ import annotations

from collections import Counter

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from minductor.frontend.capture.capture import capture
from minductor.frontend.graph_passes.share_row_interpolation import READ, share_row_interpolation
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.options import Options
from minductor.target import Env, by_name
from tests.frontend.tracing import CPU


def test_rows_are_summed_once_on_a_cpu_only() -> None:
    gm = make_fx(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        decomposition_table=decompositions(),
        tracing_mode="fake",
    )(torch.ones(1, 1, 4, 4))
    graph = capture(gm, "inference")
    assert share_row_interpolation(graph, Env(Options(), by_name("sm_90"))) is graph
    after = share_row_interpolation(graph, CPU)
    reads = [Counter(node.op for node in each.nodes)[READ] for each in (graph, after)]
    assert reads == [4, 4 + 2 + 2]  # the old ones, which are dead; two for the summed rows; two of the sums
