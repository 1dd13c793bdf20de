"""The page to walk through a compile: one HTML file that shows what became of each line, and needs no network.

The input is what a trace records of each graph: the value of each stage, the generated texts, the report. The output is
a file. `trace="html:PATH"` writes it after each graph, `Explanation.html(PATH)` when it is asked.

- `page_records.py`: what is kept of a graph while it compiles.
- `page_data.py`: the document of a page as JSON, made by `page_nodes.py` (the ATen nodes, drawn by `page_layout.py`),
  `page_files.py` (the user's files), `page_stages.py` (the text of each stage), `page_kernels.py` (schedules and what
  they cost), `page_code.py` and `page_machine.py` (generated texts and machine code); `page_highlight.py` colours them.
- `page_write.py`: puts the document, `page.html`, `page.css` and the scripts into one file.

The scripts stand beside these files, one for each pane. They hold one idea: each line and drawing has the numbers of
its ATen nodes. What the mouse points at gives a set of nodes, and everything that shares a node with it lights up
(`light.js`). The page embeds no text of another project. Pygments (BSD-2-Clause) says which parts of a source are
keywords, if it is installed, and networkx (BSD-3-Clause) sorts the drawing into layers; a page names both.
"""
