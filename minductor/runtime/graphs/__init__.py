"""CUDA graphs: records the launches of a partition once, and replays them at later calls with one launch.

Takes the functions of a wrapper's partitions. Gives functions of the same arguments that record and replay. Refuses
nothing: a call that cannot be replayed runs without a graph, with a note.

- `graph_driver.py`: the interface to the device, and the implementation by torch.cuda.
- `graph_pool.py`: what recordings share: their memory, which results are held, and the order of recording.
- `graph_results.py`: where a recorded function makes what the caller gets: outside of the pool.
- `graph_recording.py`: one recording: inputs at fixed addresses, inputs that are copied, results, and its takes.
- `graph_partition.py`: what `call` calls in place of a partition's function.
- `graph_chain.py`: the partitions of a forward graph and of its backward graph, which share pools.

How a partition runs, for each device, stream and tuple of sizes:

1. The first call runs the function. Kernels are tuned and loaded, and choices by size are settled there.
2. The second call of a thread records. An input that has the address of the first call is read where it lies; the
   others are copied into buffers of the recording, small ones in one launch. Recording has no effect; so the call
   replays.
3. Later calls copy these inputs and replay. An input that was read where it lay and has moved leads to another
   recording; if it moves again, it is copied from then on. Parameters and buffers of modules are never copied: each set
   of them has a recording, so that the layers of a model, which may share a compiled graph, have one each.

Laws of memory:

- What the caller gets lies outside of the pool, where only its own graph writes: the storages that a wrapper makes by
  `empty_result`. While somebody holds it, another take of the recording is replayed, which is recorded when it is first
  needed. If the results of two takes are held, the third serves, and its results are copied for the caller.
- All else lies in a pool, which the recordings for one stream share. What a recording frees may be used by those that
  are recorded later, so a replay may overwrite what later recordings have there, its own, and nothing else.
- So a recording is replayed only if nobody holds what it has in the pool, or what a later recording has there. Else
  this call records anew, or runs without a graph: no value that somebody holds is overwritten.
- What a forward graph saves for its backward graph stays in the pool, and is held until the backward has run. What the
  caller gets from there, as a result of an operator that makes its own memory, is copied out.
- After `torch.compiler.cudagraph_mark_step_begin()` a replay in a later step overwrites results that are held, except
  gradients, and nothing is copied out. Whoever still reads such a result gets an error with the user's line.
"""
