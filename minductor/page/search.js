// Search over everything: lines of the user, nodes, kernels, storages, stages, generated lines and notes.

const MOST_FOUND = 60;
const searchBox = document.getElementById("search"), foundBox = document.getElementById("found");
let hits = [], chosen = 0;

/** What contains the words, the likeliest first: [kind, text, action]. */
function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const has = (...texts) => { const whole = texts.join(" ").toLowerCase(); return words.every((word) => whole.includes(word)); };
  const exact = [], found = [];
  const isName = (name) => name.toLowerCase() === text.trim().toLowerCase();
  const dark = [];  // lines that come from no node
  const add = (kind, shown, action, name, isDark) => (name && isName(name) ? exact : isDark ? dark : found).push([kind, shown, action]);
  for (const kernel of now.data.kernels) {
    const names = [kernel.name, `#${kernel.handle}`, kernel.symbol || kernel.op];
    const parts = [...now.family(kernel)];
    if (has(...names, ...parts)) {
      const own = [...names, ...parts].find((name) => isName(name));
      add("kernel", `#${kernel.handle} ${kernel.name} ${kernel.symbol || kernel.op}`, () => pin(kernelThing(kernel)), own);
    }
  }
  now.nodes.forEach((node, n) => {
    if (has(node.name, node.op, node.module || "")) add("ATen node", `${node.name} = ${node.op}  ${node.meta || ""}`, () => pin(nodesThing([n], node.name)), node.name);
  });
  for (const storage of now.data.memory ? now.data.memory.storages : []) {
    if (has(...storage.names)) add("memory", `${storage.names.join(" = ")} ${bytesText(storage.bytes || 0)}`, () => { showTab("memory"); pin(nodesThing(storage.nodes, storage.names[0])); }, storage.names.find(isName));
  }
  doc.files.forEach((file, f) => file.lines.forEach((line, n) => {
    const number = file.numbers ? file.numbers[n] : n + 1;
    if (line.trim() && has(line, `${file.name}:${number}`)) add("source", `${file.name.split("/").pop()}:${number}  ${line.trim()}`, () => goToSource(f, number), "", !now.byLine.has(`${f}:${number}`));
  }));
  for (const [pane, files] of [["kernel", now.data.code], ["wrapper", now.data.wrapper]]) {
    for (const code of files) {
      const of = expand(code.runs);
      code.lines.forEach((line, n) => {
        if (has(line)) add(pane, `${code.file}:${n + 1}  ${line.trim()}`, () => goToCode(pane, code, n), "", !of[n].length);
      });
    }
  }
  if (rightStage) now.linesOf(rightStage).forEach((id) => { if (has(now.data.texts[id])) add(`IR ${rightStage.name}`, now.data.texts[id].trim(), () => goToIr(id)); });
  for (const stage of now.data.stages) {
    if (has(stage.name)) add("stage", stage.name, () => showStage(stage), stage.name);
    for (const note of stage.notes) if (has(note)) add("note", `${stage.name}: ${note}`, () => { showTab("notes"); showNotesOf(stage.name); });
  }
  return [...exact, ...found, ...dark].slice(0, MOST_FOUND);
}

function goToSource(file, number) {
  if (fileShown !== file) showFile(file);
  const nodes = now.byLine.get(`${file}:${number}`);
  if (nodes) pin(nodesThing(nodes, ""));
  goToRow("source", (row) => row.firstElementChild.textContent === String(number));
}

function goToCode(pane, code, n) {
  showTab(pane);
  const nodes = expand(code.runs)[n];
  if (nodes.length) pin(nodesThing(nodes, ""), { scroll: true });
  const fold = panes.get(pane).view.querySelector(".fold");
  if (fold && !nodes.length) fold.click();
  goToRow(pane, (row) => row.firstElementChild.textContent === String(n + 1) && row.textContent.includes(code.lines[n].trim()));
}

function goToIr(id) {
  showTab("ir");
  if (now.data.of[id].length) pin(nodesThing(now.data.of[id], ""));
  goToRow("ir", (row) => row.lastElementChild.textContent === now.data.texts[id]);
}

function goToRow(pane, test) {
  const row = [...panes.get(pane).view.querySelectorAll(".r")].reverse().find(test);
  if (!row) return;
  scrollInside(row);
  flash(row);
}

function showFound() {
  const words = searchBox.value.trim();
  hits = search(words);
  chosen = 0;
  foundBox.hidden = !words;
  if (!hits.length) {
    foundBox.replaceChildren(element("<div><span>nothing</span></div>"));
    return;
  }
  foundBox.replaceChildren(...hits.map(([kind, text, action], n) => {
    const row = element(`<div aria-selected="${n === 0}"><span>${escapeText(kind)}</span><code>${escapeText(text)}</code></div>`);
    row.addEventListener("pointerdown", (event) => { event.preventDefault(); take(action); });
    return row;
  }));
}

function take(action) {
  foundBox.hidden = true;
  searchBox.blur();
  action();
}

searchBox.addEventListener("input", showFound);
searchBox.addEventListener("focus", () => { if (searchBox.value) showFound(); });
searchBox.addEventListener("blur", () => { foundBox.hidden = true; });
searchBox.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { searchBox.value = ""; foundBox.hidden = true; searchBox.blur(); }
  if (event.key === "Enter" && hits.length) take(hits[chosen][2]);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && hits.length) {
    event.preventDefault();
    foundBox.children[chosen].setAttribute("aria-selected", "false");
    chosen = (chosen + step + hits.length) % hits.length;
    foundBox.children[chosen].setAttribute("aria-selected", "true");
    foundBox.children[chosen].scrollIntoView({ block: "nearest" });
  }
  event.stopPropagation();
});
