// The ATen graph, drawn: nodes in layers, coloured by the user's line, by the kernel or by the module they are in.

const SVG = "http://www.w3.org/2000/svg";
const LAYER = 62, NODE = 38;
let colourBy = "line";
let drawing = null;  // {svg, box, edges}: the drawing in view, and the part of it that is seen

const graphPane = new Pane("graph", "ATen graph", "graph", (view, tools) => {
  const options = [["line", "by user line"], ["kernel", "by kernel"], ["module", "by module"]];
  const select = element(`<select title="What colours mean">${options.map(([value, text]) =>
    `<option value="${value}"${value === colourBy ? " selected" : ""}>${text}</option>`).join("")}</select>`);
  select.addEventListener("change", () => { colourBy = select.value; graphPane.redraw(); });
  tools.replaceChildren(select);
  if (!now.nodes.length) {
    view.replaceChildren(nothing("No ATen graph was captured."));
    return;
  }
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "drawing");
  svg.innerHTML = edgesHtml() + now.nodes.map(nodeHtml).join("");
  const buttons = element(`<div class="float"><button title="Larger (+)">+</button><button title="Smaller (-)">−</button><button title="All of it (0)">Fit</button></div>`);
  buttons.children[0].addEventListener("click", () => zoom(0.75));
  buttons.children[1].addEventListener("click", () => zoom(1.33));
  buttons.children[2].addEventListener("click", fit);
  view.replaceChildren(svg, buttons);
  drawing = { svg, box: null, edges: [...svg.querySelectorAll("path")], places: now.nodes.map((node) => [node.x, node.y + NODE / 2]) };
  svg.querySelectorAll(".node").forEach((shape, n) => {
    addLight("graph", shape, [n], { anyNode: true, what: now.nodes[n].name });
  });
  listenToDrag(svg);
  requestAnimationFrame(start);
}, {
  /** Moves the drawing so that the first of a thing's nodes is in view. */
  reveal(thing) {
    if (!drawing || !drawing.box || !thing.nodes.size) return;
    const nodes = [...thing.nodes].filter((n) => now.nodes[n].kind === "call");
    const [x, y] = drawing.places[nodes.length ? nodes[0] : [...thing.nodes][0]];
    const box = drawing.box;
    const isSeen = x > box.x + 20 && x < box.x + box.w - 20 && y > box.y + 20 && y < box.y + box.h - 20;
    if (!isSeen) setBox({ ...box, x: x - box.w / 2, y: y - box.h / 2 });
  },
});

function edgesHtml() {
  const edges = now.data.drawing.edges;
  return `<g>${edges.map(([start, end, bends]) => {
    const a = now.nodes[start], b = now.nodes[end];
    let [x, y] = [a.x, a.y + NODE];
    let path = `M${x} ${y}`;
    const points = [];
    for (let n = 0; n < bends.length; n += 2) points.push([bends[n], bends[n + 1]], [bends[n], bends[n + 1] + NODE]);
    points.push([b.x, b.y]);
    for (const [right, down] of points) {
      const middle = (y + down) / 2;
      path += right === x ? `L${x} ${down}` : `C${x} ${middle} ${right} ${middle} ${right} ${down}`;
      [x, y] = [right, down];
    }
    return `<path d="${path}"/>`;
  }).join("")}</g>`;
}

function nodeHtml(node, n) {
  const kernels = (now.kernelsOf.get(n) || []).map((k) => now.data.kernels[k]);
  const hue = hueBy(n, kernels);
  const shape = (node.meta || "").split(" stride")[0].replace("(", "");
  const classes = `node ${node.kind}${node.returned ? " returned" : ""}`;
  const style = hue === undefined ? "" : ` style="--h:${hue};--s:62%"`;
  const left = node.x - node.w / 2;
  const badge = kernels.length ? `<text class="badge" x="${node.x + node.w / 2 - 4}" y="${node.y - 3}" text-anchor="end" style="text-anchor:end">${escapeText(kernels.slice(0, 3).map((kernel) => kernel.name).join(" "))}${kernels.length > 3 ? " …" : ""}</text>` : "";
  return `<g class="${classes}"${style}><title>${escapeText(nodeTitle(n))}</title><rect x="${left}" y="${node.y}" width="${node.w}" height="${NODE}"/>`
    + `<text x="${node.x}" y="${node.y + 16}">${escapeText(node.name)}</text><text class="sub" x="${node.x}" y="${node.y + 30}">${escapeText(shape.slice(0, 26))}</text>${badge}</g>`;
}

function hueBy(n, kernels) {
  if (colourBy === "line") return now.hueOf(n);
  const name = colourBy === "kernel" ? kernels[0] && kernels[0].name : now.nodes[n].module;
  if (!name) return undefined;
  const names = colourBy === "kernel" ? now.data.kernels.map((kernel) => kernel.name) : [...new Set(now.nodes.map((node) => node.module).filter(Boolean))];
  return Math.round((names.indexOf(name) * 137.508) % 360);
}

/** Lights the edges between nodes that shine. */
function shineEdges(thing) {
  if (!drawing || !graphPane.isShown()) return;
  now.data.drawing.edges.forEach(([start, end], n) => {
    if (thing.nodes.has(start) && thing.nodes.has(end)) {
      drawing.edges[n].classList.add("lit");
      shining.push(drawing.edges[n]);
    }
  });
}

// --- moving and zooming

function setBox(box) {
  drawing.box = box;
  drawing.svg.setAttribute("viewBox", `${box.x} ${box.y} ${box.w} ${box.h}`);
}

function fit() {
  if (!drawing) return;
  const { width, height } = now.data.drawing;
  setBox({ x: -20, y: -24, w: width + 40, h: height + 30 });
}

/** All of the drawing if it can be read then; else its top, at full size. */
function start() {
  if (!drawing) return;
  const { width, height } = now.data.drawing;
  const w = drawing.svg.clientWidth || 600, h = drawing.svg.clientHeight || 400;
  const scale = Math.max((width + 40) / w, (height + 30) / h);
  if (scale <= 1.5) {
    const s = Math.max(scale, 0.8);
    setBox({ x: width / 2 - (w * s) / 2, y: (height - LAYER + NODE) / 2 - (h * s) / 2, w: w * s, h: h * s });
    return;
  }
  const first = now.nodes.find((node) => node.kind === "call") || now.nodes[0];
  setBox({ x: first.x - (w * 1.2) / 2, y: first.y - 80, w: w * 1.2, h: h * 1.2 });
  if (pinned) graphPane.reveal(pinned);
}

function zoom(factor, x = 0.5, y = 0.5) {
  if (!drawing || !drawing.box) return;
  const box = drawing.box, w = box.w * factor, h = box.h * factor;
  setBox({ x: box.x + (box.w - w) * x, y: box.y + (box.h - h) * y, w, h });
}

let dragged = false;  // whether the mouse moved the drawing: then the click that follows pins nothing

function listenToDrag(svg) {
  let from = null;
  svg.addEventListener("pointerdown", (event) => {
    from = { x: event.clientX, y: event.clientY, box: drawing.box };
    dragged = false;
  });
  svg.addEventListener("pointermove", (event) => {
    if (!from || !event.buttons) return;
    const dx = event.clientX - from.x, dy = event.clientY - from.y;
    if (Math.abs(dx) + Math.abs(dy) < 4) return;
    dragged = true;
    svg.classList.add("moved");
    const scale = Math.max(from.box.w / svg.clientWidth, from.box.h / svg.clientHeight);
    setBox({ ...from.box, x: from.box.x - dx * scale, y: from.box.y - dy * scale });
  });
  const end = () => {
    from = null;
    svg.classList.remove("moved");
    setTimeout(() => { dragged = false; });
  };
  svg.addEventListener("pointerup", end);
  svg.addEventListener("pointerleave", end);
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const place = svg.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.15 : 0.87, (event.clientX - place.left) / place.width, (event.clientY - place.top) / place.height);
  }, { passive: false });
}
