"""Plans: one call of a compiled graph as a sequence of lines, and the live ranges of its storages.

Stage `memory` makes a plan from a program. The emitters of wrappers (`codegen/wrapper/`) print it as Python, C++ or FX.

- `plan.py`: the classes of lines, and `Plan`.
- `storage.py`: bytes, live ranges and the peak of memory.
- `storage_lives.py`: computes live ranges from the lines of a plan.
- `plan_text.py`: prints a plan for people.
- `plan_json.py`: writes a plan as JSON and reads it.
- `verify_plan.py`: the rules of plans.

Laws: a name is made before it is used and not used after it is freed; the live ranges in `Plan.storages` are those that
the lines give; an emitter needs the lines only.
"""
