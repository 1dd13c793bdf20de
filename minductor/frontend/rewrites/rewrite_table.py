"""The table of graph rewrites, and which of them the options leave on.

Takes the Env, and rows of the user's and of a backend. Gives the rows of one level, in the order in which they apply.
Refuses names in the option `rewrites` that no row has (BadOptionValue, with the nearest name).

>>> selected("-fold_batchnorm", ())  # doctest: +ELLIPSIS
Traceback (most recent call last):
...
minductor.core.errors.BadOptionValue: [MD002] option 'rewrites' does not take '-fold_batchnorm' (str)
  hint: did you mean 'fold_batch_norm'? it takes all and the names of rewrites, each behind + or -: ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minductor.core.errors import BadOptionValue, suggestion
from minductor.frontend.rewrites.add_phases import ADD_PHASES
from minductor.frontend.rewrites.addmm_activation import ADDMM_ACTIVATION
from minductor.frontend.rewrites.attention import ATTENTION
from minductor.frontend.rewrites.channels_last import CHANNELS_LAST, TRAIN_CHANNELS_LAST
from minductor.frontend.rewrites.convolution_post_ops import CLAMPING_POST_OPS, POST_OPS
from minductor.frontend.rewrites.fold_batch_norm import FOLD_BATCH_NORM
from minductor.frontend.rewrites.int8_linear import INT8_LINEAR
from minductor.frontend.rewrites.join_added_parts import JOIN_ADDED_PARTS
from minductor.frontend.rewrites.join_added_products import JOIN_ADDED_PRODUCTS
from minductor.frontend.rewrites.join_products import JOIN_PRODUCTS
from minductor.frontend.rewrites.large_linear import LARGE_LINEAR
from minductor.frontend.rewrites.pack_convolution import PACK_CONVOLUTION
from minductor.frontend.rewrites.pack_linear import PACK_LINEAR
from minductor.frontend.rewrites.pad_products import PAD_ALL_PRODUCTS, PAD_PRODUCTS, PAD_TRAINED_PRODUCTS
from minductor.frontend.rewrites.repeat_elements import REPEAT_ELEMENTS
from minductor.frontend.rewrites.rewrite_row import LEVELS, Level, Rewrite
from minductor.frontend.rewrites.split_bias import SPLIT_BIAS
from minductor.frontend.rewrites.vector_products import VECTOR_PRODUCTS
from minductor.frontend.rewrites.widen_products import WIDEN_PRODUCTS

ALL = "all"  # in the option, the name of every row

REWRITES: tuple[Rewrite, ...] = (
    # Dynamo's graphs
    ATTENTION,
    REPEAT_ELEMENTS,
    ADD_PHASES,
    # joint graphs of training
    PAD_TRAINED_PRODUCTS,
    TRAIN_CHANNELS_LAST,
    # ATen graphs
    JOIN_ADDED_PRODUCTS,
    JOIN_ADDED_PARTS,
    INT8_LINEAR,
    ADDMM_ACTIVATION,
    PAD_PRODUCTS,
    PAD_ALL_PRODUCTS,
    VECTOR_PRODUCTS,
    WIDEN_PRODUCTS,
    LARGE_LINEAR,
    SPLIT_BIAS,
    CHANNELS_LAST,
    # frozen graphs
    FOLD_BATCH_NORM,
    JOIN_PRODUCTS,
    PACK_LINEAR,
    PACK_CONVOLUTION,
    POST_OPS,
    CLAMPING_POST_OPS,
)


def selected(option: str, own: Sequence[Rewrite]) -> Mapping[Level, Sequence[Rewrite]]:
    """The rewrites that are on, by level.

    Args:
        option: the option `rewrites`: names behind "-" are off, names behind "+" are on; a later one counts.
        own: rows of the user's and of the backend, which apply behind ours.

    Raises:
        BadOptionValue: no row has a name of the option, or two rows have one name.
    """
    rows = (*REWRITES, *own)
    names = [row.name for row in rows]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise BadOptionValue("rewrites", twice, "rows whose names differ: two have this one")
    is_on = {row.name: row.is_on for row in rows}
    for each in filter(None, option.replace(" ", "").split(",")):
        name = each[1:]
        if name != ALL and name not in is_on:
            takes = f"all and the names of rewrites, each behind + or -: {', '.join(sorted(names))}"
            raise BadOptionValue("rewrites", option, takes, meant=suggestion(name, (ALL, *names)))
        for key in names if name == ALL else (name,):
            is_on[key] = each[0] == "+"
    return {level: [row for row in rows if row.level == level and is_on[row.name]] for level in LEVELS}
