"""Questions about kernels and programs that several stages ask. Nothing here changes a program.

Of a kernel's index expressions:
- `domain.py`: how many points a kernel has, and which point touches a given element (`solve`);
- `strides.py`: how far one access moves when an axis moves by one;
- `bends.py`: at how many points of an axis an index changes its formula;
- `touch.py`: how all accesses of a kernel move along its axes, and along which axis most bytes are contiguous;
- `blocks.py`: which block of memory a tile touches, as dimensions with strides;
- `both_ways.py`: whether a kernel reduces along rows and along columns of a matrix in one pass;
- `passes_over.py`: in which pass over a row an operation runs, and how many passes there are;
- `walked_again.py`: which loads bring the same row again in a later walk over it;
- `uniform_parts.py`: which of the values that a reduction carries are the same in all lanes;
- `function_chains.py`: how many functions, such as exponentials, wait for each other.

Of the nodes of a program:
- `dependencies.py`: which node must run before which other one;
- `acyclic.py`: a graph of nodes that are merged, without making a cycle;
- `capturable_nodes.py`: which nodes a CUDA graph can capture, and why not the others.

The modules take programs, kernels or index expressions and give plain data. They import `core` and `ir`, and each
other. `cost` asks them; passes ask both.
"""
