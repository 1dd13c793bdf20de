"""Shows what each stage of a compile did, where the option `trace` and torch's logs ask for it.

The input is a record for each stage: its graph, its seconds, its counts, its notes, and the text of its value. The
output is lines on stderr, files in a folder, an HTML page, or records of torch's logs.

- `trace.py`: `Trace`, made from the text of the option, and the places that it writes to.
- `runnable_folder.py`: the files under `trace="dir:PATH"` from which a compiled graph can be run.
- `provenance_viewer.py`: artefacts of torch's structured trace, by which tlparse links a graph's texts.
"""
