// Lines of text as rows, each a light.
// Takes lines with their nodes and the classes of their parts. Gives elements. Rows stand in chunks, of which the
// browser draws those in view.

const CHUNK = 60;
const IR = /(%\d+)|("(?:[^"\\]|\\.)*")|(@\d+|\b\d+(?:\.\d+)?(?:e[-+]?\d+)?\b)|\b(program|plan|graph|kernel|extern|input|buffer|constant|symbol|return|from|because|schedule|parallel|serial|vector|scalar|tree|grid|tile|carry|lanes|by|parts|rows|results|recipe|access|variant|choice|launch|allocate|reuse|free|view|define|region|over|of|else|yield|stride)\b|\b(load|store|atomic|reduce|scan|masked|index|check|assert|project|round_to)\b|\b((?:b?f|i|u|c)\d+|bool)\b/g;

/** A line of the IR as HTML, with colours. */
function irHtml(text) {
  let html = "", last = 0;
  for (const found of text.matchAll(IR)) {
    const kind = found[1] ? "" : found[2] ? "k4" : found[3] ? "k3" : found[4] ? "k1" : found[5] ? "k7" : "k2";
    html += escapeText(text.slice(last, found.index));
    html += kind ? `<span class="${kind}">${escapeText(found[0])}</span>` : escapeText(found[0]);
    last = found.index + found[0].length;
  }
  return html + escapeText(text.slice(last));
}

/** A line of a source as HTML: `marks` are numbers of a class and a length, in turns. */
function markedHtml(text, marks) {
  let html = "", place = 0;
  for (let n = 0; n < marks.length; n += 2) {
    const part = escapeText(text.slice(place, place + marks[n + 1]));
    html += marks[n] ? `<span class="k${marks[n]}">${part}</span>` : part;
    place += marks[n + 1];
  }
  return html + escapeText(text.slice(place));
}

/** The style of the strip beside a line: the hues of the user's lines that it comes from. */
function strip(nodes) {
  const hues = now.huesOf(nodes);
  if (!hues.length) return "";
  const stops = hues.map((h, n) => `hsl(${h} 68% var(--tone)) ${(n * 100) / hues.length}% ${((n + 1) * 100) / hues.length}%`);
  return ` data-h="" style="--h:${hues[0]}${hues.length > 1 ? `;--g:linear-gradient(${stops.join(",")})` : ""}"`;
}

/**
 * The rows of a text. Each line: {html, nodes, number, kind, block, kernel, what}; a line with `fold` is a button that
 * shows the lines in it.
 */
function rowsOf(pane, lines, { anyNode = false } = {}) {
  const box = document.createElement("div");
  box.className = "rows";
  for (let start = 0; start < lines.length;) {
    if (lines[start].fold) {
      box.append(foldOf(pane, lines[start], anyNode));
      start += 1;
      continue;
    }
    let end = start;
    while (end < lines.length && end < start + CHUNK && !lines[end].fold) end += 1;
    const part = lines.slice(start, end);
    const chunk = document.createElement("div");
    chunk.className = "chunk";
    chunk.style.setProperty("--n", part.length);
    chunk.innerHTML = part.map(rowHtml).join("");
    part.forEach((line, n) => {
      const row = chunk.children[n];
      line.row = row;
      if (line.nodes && line.nodes.length) {
        addLight(pane, row, line.nodes, { anyNode, block: line.block, kernel: line.kernel, what: line.what, spot: line.spot, rank: line.rank });
      }
    });
    box.append(chunk);
    start = end;
  }
  return box;
}

function rowHtml(line) {
  const number = line.number === undefined ? "" : `<u>${line.number}</u>`;
  return `<div class="r ${line.kind || ""}"${line.nodes ? strip(line.nodes) : ""}>${number}<s></s><code>${line.html || " "}</code></div>`;
}

function foldOf(pane, line, anyNode) {
  const button = element(`<button class="fold">▸ ${escapeText(line.text)}</button>`);
  button.addEventListener("click", () => button.replaceWith(rowsOf(pane, line.fold, { anyNode })));
  return button;
}

/** Marks a row for a moment, so that the eye finds it. */
function flash(row) {
  row.classList.remove("flash");
  void row.offsetWidth;
  row.classList.add("flash");
}

// --- panes: what the cells show

const panes = new Map();

/** A pane: `build` fills its view, when it is first shown for a graph. `cell`: the cell that it is a tab of. */
class Pane {
  constructor(name, title, cell, build, more = {}) {
    Object.assign(this, { name, title, cell, build, drawnFor: null }, more);
    panes.set(name, this);
  }

  isShown() {
    return !this.view.hidden;
  }

  /** Fills the view if it is in view and not filled for this graph. */
  draw() {
    if (!this.isShown() || this.drawnFor === now) return;
    this.drawnFor = now;
    clearLights(this.name);
    this.view.scrollTop = 0;
    this.build(this.view, this.tools);
  }

  /** Draws it anew at once, or when it is shown again. */
  redraw() {
    this.drawnFor = null;
    this.draw();
    if (this.isShown() && pinned) shine(pinned);
  }
}

function nothing(text) {
  return element(`<p class="nothing">${escapeText(text)}</p>`);
}
