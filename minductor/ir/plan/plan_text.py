"""Prints plans, one text line for each line of the plan, for the trace and `explain`.

Takes a Plan. Gives its text. Refuses nothing.
"""

from __future__ import annotations

from typing import assert_never

from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import Line, Plan
from minductor.ir.program.nodes import Body
from minductor.ir.program.printer import print_argument, print_body, print_sizes


def print_plan(plan: Plan) -> str:
    """The text of a plan, with its regions."""
    head = f"plan {plan.name} ({', '.join(given.name for given in plan.inputs)})"
    inner = [f"  {line}" for region in plan.regions for line in print_plan(region).splitlines()]
    return "\n".join([head, *inner, *(f"  {print_line(line)}" for line in plan.lines)]) + "\n"


def print_line(line: Line) -> str:
    """The text of one line."""
    match line:
        case lines.KernelLine(id, symbol, parameters, digest, _):
            return f"kernel {id} {symbol}({', '.join(f'{name}: {dtype}' for name, dtype in parameters)}) {digest}"
        case lines.ConstantLine(name, number):
            return f"constant {name} = {number}"
        case lines.AllocateLine(name, dtype, size, stride, device):
            return f"allocate {name}: {dtype.name}{print_sizes(size)} stride {print_sizes(stride)} {device}"
        case lines.ReuseLine(name, old, dtype, size, stride):
            return f"reuse {name} = {old} as {dtype.name}{print_sizes(size)} stride {print_sizes(stride)}"
        case lines.ViewLine(name, of, dtype, size, stride, offset):
            return f"view {name} = {of} as {dtype.name}{print_sizes(size)} stride {print_sizes(stride)} offset {offset}"
        case lines.FreeLine(names):
            return f"free {', '.join(names)}"
        case lines.LaunchLine(kernel, tensors, sizes, origins, handle, device):
            given = ", ".join((*tensors, *map(str, sizes)))
            where = "" if device == "cpu" else f" on {device}"
            return f"launch #{handle} {kernel}({given}){where} from {', '.join(o.node for o in origins)}"
        case lines.DispatchLine(choice, variants, tensors, sizes, _, _, digest, origins, handle):
            groups = zip(choice.options, variants, strict=True)
            texts = (f"{option} {{ {'; '.join(map(print_line, group))} }}" for option, group in groups)
            given = ", ".join((*tensors, *(size.name for size in sizes)))
            head = f"dispatch #{handle} {digest}({given}) {choice}"
            return f"{head} {' '.join(texts)} from {', '.join(o.node for o in origins)}"
        case lines.ExternLine(op, args, kwargs, results, is_out, origins, handle, dtypes):
            given = ", ".join([*map(print_argument, args), *(f"{k}={print_argument(v)}" for k, v in kwargs)])
            form = "into" if is_out else "->"
            made = ", ".join(name or "_" for name in results)
            head = f"{'checked ' if dtypes else ''}extern #{handle} {op}"
            return f"{head}({given}) {form} ({made}) from {', '.join(o.node for o in origins)}"
        case lines.SymbolLine(symbol, source):
            match source:
                case lines.SizeOf(tensor, dim, scale, shift):
                    factor = "" if (scale, shift) == (1, 0) else f" is {scale} * {symbol.name} + {shift}"
                    return f"define {symbol.name} = size {dim} of {tensor}{factor}"
                case Body():
                    return f"define {symbol.name} = {_scalar(source)}"
                case str():
                    return f"define {symbol.name} = {source}"
        case lines.LayoutLine(name, size, stride):
            return f"laid out {name} {print_sizes(size)} stride {'any' if stride is None else print_sizes(stride)}"
        case lines.AssertLine(condition, message):
            return f"assert {_scalar(condition) if isinstance(condition, Body) else condition} {message!r}"
        case lines.PartitionLine(number):
            return f"partition {number}"
        case lines.DeviceScopeLine(device):
            return f"on {device} {{"
        case lines.ScopeEndLine():
            return "}"
        case lines.ReturnLine(values):
            return f"return ({', '.join(map(print_argument, values))})"
        case _:
            assert_never(line)


def _scalar(body: Body) -> str:
    return f"{{ {'; '.join(print_body(body).splitlines())} }}"
