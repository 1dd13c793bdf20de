"""What each stage did, shown where the user asked. The option `trace` says where.

- `trace.py`: `Trace`, which hands a record of each stage to its sinks: lines, a folder, an HTML page, torch's logs.
- `runnable_folder.py`: under `trace="dir:PATH"`, files from which a graph runs by itself.

The driver makes the records (`Compiler.run_stage` one for each stage). A stage never logs by itself.
"""
