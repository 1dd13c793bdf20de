"""The stage `partition`: an order of the nodes with fewer partitions for CUDA graphs.

Takes an ordered program, after `access`; gives it in another order, or as it is. `partition.py` chooses the order;
`analysis/capturable_nodes.py` says which nodes a CUDA graph can capture and gives the partitions; the stage `memory`
writes them into the plan, and `runtime/graphs/` captures them under the option `cudagraphs`.

Laws: every dependency is kept. The peak of memory grows at most by the factor `HIGHER_PEAK`. Only targets with CUDA
graphs are changed. The user sees the partitions, and the reason for each node that cannot be captured, in the report
and in the log.
"""
