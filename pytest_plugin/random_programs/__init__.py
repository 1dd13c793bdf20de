"""Random programs: their grammar, their text, the comparison with eager, and the campaign of `--fuzz`.

The files in reading order; `pytest_plugin/strategies.py` draws programs with hypothesis:

    grammar.py    the families of lines that programs are made of
    programs.py   Program: its text, its function, its script, and smaller programs
    verdict.py    judge: whether a compiled program is as good as eager
    noise.py      how far eager's own rounding errors move the results of a program
    campaign.py   --fuzz: programs by number, their records, and a script for each bad one

Data: a number gives a Program; the adapter compiles it; judge gives a ProgramVerdict; the campaign writes a record and
a script. Laws: a program of a number is the same everywhere. A result that rounding alone can explain is never wrong.
"""
