// The document of the page, and questions about the graph that is shown.
// Takes the JSON of page_data.py. Gives `doc`, `now` (the graph that is shown) and functions that read them.

const doc = JSON.parse(document.getElementById("data").textContent);
let now = null;
const FEW_LINES = 4;

/** One graph with what several panes ask of it. */
class GraphView {
  constructor(data) {
    this.data = data;
    this.nodes = data.nodes;
    this.lineKeys = [];  // "file:line" in the order of the files: the number of a key gives the hue
    const keys = new Set(data.nodes.filter((node) => node.at).map((node) => node.at.join(":")));
    this.lineKeys = [...keys].sort(byFileAndLine);
    this.hues = new Map(this.lineKeys.map((key, n) => [key, hueNumber(n)]));
    this.isByNode = this.lineKeys.length < FEW_LINES;
    this.byLine = groupBy(data.nodes.map((_, n) => n).filter((n) => data.nodes[n].at), (n) => data.nodes[n].at.join(":"));
    this.byName = new Map(data.nodes.map((node, n) => [node.name, n]));
    this.kernelsOf = new Map();
    data.kernels.forEach((kernel, k) => kernel.nodes.forEach((n) => push(this.kernelsOf, n, k)));
    const made = new Map();
    for (const row of data.why ? data.why.joined : []) push(made, row[1], row[0]);
    this.parts = made;
    this.textIds = sameTexts(data.texts);
    data.stages.forEach((stage, n) => { stage.number = n; });
  }

  /** The hue of a node: that of the user's line, or its own if few lines made the graph. */
  hueOf(n) {
    const at = this.nodes[n].at;
    if (this.isByNode) return at ? hueNumber(this.calls().indexOf(n)) : undefined;
    return at ? this.hues.get(at.join(":")) : undefined;
  }

  /** The numbers of the nodes that are calls and come from a line of the user. */
  calls() {
    this.callNumbers ??= this.nodes.map((_, n) => n).filter((n) => this.nodes[n].at && this.nodes[n].kind === "call");
    return this.callNumbers;
  }

  /** The hues of nodes, each once. */
  huesOf(nodes) {
    const found = new Set();
    for (const n of nodes) {
      const hue = this.hueOf(n);
      if (hue !== undefined) found.add(hue);
      if (found.size === 5) break;
    }
    return [...found];
  }

  /** The names by which texts call a kernel: its own, those that became part of it, its function and its handle. */
  family(kernel) {
    const names = new Set([kernel.name]);
    const waiting = [kernel.name];
    while (waiting.length) {
      for (const part of this.parts.get(waiting.pop()) || []) {
        if (!names.has(part)) { names.add(part); waiting.push(part); }
      }
    }
    if (kernel.symbol) names.add(kernel.symbol);
    names.add(`#${kernel.handle}`);
    return names;
  }

  /** The numbers of a stage's lines; of a stage that changes nothing those of the stage before. */
  linesOf(stage) {
    let n = stage.number;
    while (n > 0 && this.data.stages[n].same) n -= 1;
    return this.data.stages[n].lines || [];
  }

  blocksOf(stage) {
    let n = stage.number;
    while (n > 0 && this.data.stages[n].same) n -= 1;
    return this.data.stages[n].blocks || [];
  }
}

/** A hue far from those of the numbers before it. */
function hueNumber(n) {
  return Math.round((n * 137.508 + 205) % 360);
}

function byFileAndLine(a, b) {
  const [file, line] = a.split(":").map(Number), [other, place] = b.split(":").map(Number);
  return file - other || line - place;
}

function sameTexts(texts) {
  const ids = new Map();
  return texts.map((text) => {
    if (!ids.has(text)) ids.set(text, ids.size);
    return ids.get(text);
  });
}

function groupBy(values, key) {
  const found = new Map();
  for (const value of values) push(found, key(value), value);
  return found;
}

function push(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

/** The nodes of each line of a text, from rows of a number of lines and their nodes. */
function expand(runs) {
  const found = [];
  for (const [count, nodes] of runs) for (let n = 0; n < count; n += 1) found.push(nodes);
  return found;
}

function escapeText(text) {
  return text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
}

/** An element from HTML; its values must be escaped. */
function element(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html.trim();
  return holder.content.firstElementChild;
}

function shortOp(op) {
  const parts = op.split(".");
  return parts.length > 1 ? parts[1] : op;
}

function bytesText(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let n = 0;
  while (bytes >= 1000 && n < units.length - 1) { bytes /= 1000; n += 1; }
  return `${n && bytes < 100 ? bytes.toPrecision(3) : Math.round(bytes)} ${units[n]}`;
}

function secondsText(seconds) {
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  if (seconds >= 1e-3) return `${(seconds * 1e3).toPrecision(3)} ms`;
  return `${Number((seconds * 1e6).toPrecision(3))} µs`;
}

/** "models.py:93", the short name of a user's line. */
function placeText(at) {
  return `${doc.files[at[0]].name.split(/[\\/]/).pop()}:${at[1]}`;
}

/** The text of a user's line; "" if the page does not hold it. */
function sourceLine(at) {
  const file = doc.files[at[0]];
  const place = file.numbers ? file.numbers.indexOf(at[1]) : at[1] - 1;
  return place >= 0 && place < file.lines.length ? file.lines[place].trim() : "";
}
