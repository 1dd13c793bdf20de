"""Dead code of programs goes, with or without fusion."""

from __future__ import annotations

from minductor.options import Options
from minductor.passes.remove_dead_code.remove_dead_code import remove_dead_code
from minductor.target import Env
from tests.passes.sketch import CPU, Sketch
from tests.verifying import verify


def test_dead_nodes_and_their_buffers_go_without_fusion() -> None:
    s = Sketch()
    x = s.input(3, 4)
    s.op("exp", s.op("neg", x))
    program = s.done(s.op("cos", x))
    after = remove_dead_code(program, Env(Options(fuse=False), CPU.target))
    verify(after, "remove_dead_code")
    assert after.nodes == program.nodes[2:]
    assert {buffer.name for buffer in program.buffers} - {buffer.name for buffer in after.buffers} == {"buf1", "buf2"}
    assert remove_dead_code(after, CPU) is after
