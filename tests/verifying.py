"""Holds a program to the rules of one stage of the pipeline, as the driver does.

Takes a Program and a stage's name. Gives nothing. Refuses a program that breaks a rule, with VerifyError.
"""

from __future__ import annotations

from minductor.driver import stages_up_to
from minductor.ir.program import verify_program
from minductor.ir.program.nodes import Program


def verify(program: Program, stage: str) -> None:
    """Checks the rules that hold after the stage."""
    verify_program.verify(program, stages_up_to(stage))
