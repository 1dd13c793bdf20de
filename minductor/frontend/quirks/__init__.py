"""Where torch differs from eager, or from its other versions, and what minductor does about it.

Read `known_quirks.py` first: its table has one row for each quirk, with the versions of torch, what torch does, and the
function here or elsewhere that handles it. A test shows each row in torch alone and fails once torch has changed.

- `known_quirks.py`: the table.
- `replaced_functions.py`: functions of Dynamo's graph that are replaced before AOTAutograd traces them.
- `encoder_layers.py`: the formula of a transformer encoder layer, which torch traces as if autocast were off.
- `eager_strides.py`: the strides that eager gives to results, for which fake tensors have others.
- `wide_statistics.py`: the dtype that a norm's mean and rstd have in eager, where the trace has a narrower one.
- `torch_versions.py`: what differs between versions of torch, and what is reached by torch's private names.

Graphs and fake tensors come in and go out; nothing here knows minductor's IR. A quirk of the generated code's calls is
handled where the call is made, in `runtime`, and has its row here all the same.
"""
