"""Where a rule of the house gives way, and why. A row that is no longer needed fails `test_exceptions_are_needed`."""

# (rule, file, what the violation names): reason
EXCEPTIONS: dict[tuple[str, str, str], str] = {
    ("layers", "minductor/target.py", "minductor.options"): "Env pairs the two files of this layer",
    ("effects", "minductor/tracing/trace.py", "threading"): "graphs compiled in several threads share one page",
    (
        "mutable_state",
        "minductor/core/expressions/interning.py",
        "TABLE",
    ): "the interning table: weak, so it forgets by itself",
    (
        "no_flags",
        "minductor/frontend/quirks/replaced_functions.py",
        "_dropout.training",
    ): "the parameters are those of F.dropout",
    (
        "no_flags",
        "minductor/frontend/quirks/replaced_functions.py",
        "_dropout.inplace",
    ): "the parameters are those of F.dropout",
    (
        "no_flags",
        "minductor/frontend/quirks/replaced_functions.py",
        "_plain_dropout.train",
    ): "the parameters are those of torch.dropout",
    ("no_guesses", "minductor/frontend/rules/reduce.py", "correction"): "the default of an argument, and no size",
    ("layers", "pytest_plugin/faults/trials.py", "_pytest"): "pytest has no public way to run a test once more",
}

# Comments that switch the type checker off, by file: how many. The numbers only go down.
TYPE_IGNORES: dict[str, int] = {
    "minductor/core/expressions/algebra.py": 1,
    "minductor/core/expressions/expr.py": 3,
    "minductor/core/expressions/interning.py": 1,
    "minductor/ir/program/nodes.py": 1,
    "minductor/ir/report/report.py": 1,
}
