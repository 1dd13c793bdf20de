// The user's files: each line knows the ATen nodes that it became.

let fileShown = 0;

const sourcePane = new Pane("source", "Source", "source", (view, tools) => {
  if (!doc.files.length) {
    view.replaceChildren(nothing("This graph has no lines of a file: its code was typed at a prompt, or made by a program."));
    return;
  }
  const used = new Set(now.nodes.filter((node) => node.at).map((node) => node.at[0]));
  if (used.size && !used.has(fileShown)) fileShown = Math.min(...used);
  const select = element(`<select title="The file">${doc.files.map((file, n) =>
    `<option value="${n}"${n === fileShown ? " selected" : ""}>${escapeText(file.name)}</option>`).join("")}</select>`);
  select.addEventListener("change", () => showFile(Number(select.value)));
  tools.replaceChildren(select);
  const file = doc.files[fileShown];
  const lines = file.lines.map((text, n) => {
    const number = file.numbers ? file.numbers[n] : n + 1;
    const nodes = now.byLine.get(`${fileShown}:${number}`) || [];
    return { html: markedHtml(text, file.marks[n]), nodes, number, what: `${file.name}:${number}` };
  });
  view.replaceChildren(rowsOf("source", lines, { anyNode: true }));
  const first = lines.find((line) => line.nodes.length);
  if (first) requestAnimationFrame(() => scrollInside(first.row));
}, {
  /** Shows the file that most nodes of a thing come from. */
  reveal(thing) {
    const counts = new Map();
    for (const n of thing.nodes) {
      const at = now.nodes[n].at;
      if (at) counts.set(at[0], (counts.get(at[0]) || 0) + 1);
    }
    if (!counts.size || counts.has(fileShown)) return;
    fileShown = [...counts].sort((a, b) => b[1] - a[1])[0][0];
    this.redraw();
  },
});

function showFile(number) {
  fileShown = number;
  sourcePane.redraw();
}
