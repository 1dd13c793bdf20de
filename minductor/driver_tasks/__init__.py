"""What the driver does outside of the pipeline, one file for each task, in the order of a call.

- `argument_checks.py`: what public functions refuse before they do anything;
- `eager_fallback.py`: graphs and inputs that run in eager, and the warning about each;
- `placement.py`: the target that a graph is compiled for;
- `stores.py`: the store of each cache folder, and which of its entries serve a graph;
- `tuning_winners.py`: what autotuning chose, as the store keeps it;
- `artefacts.py`: builds the files of a compiled graph, and loads stored files as a call.

`minductor/driver.py` calls them; none of them imports the driver.
"""
