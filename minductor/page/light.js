// What lights up. Each line, node, bar and card is a light: an element with the numbers of its ATen nodes.
// What the mouse points at gives a set of nodes; each light that shares a node with it shines. A click pins the set.
//
// A light shines fully if all its nodes are in the set, and weakly if some are. Of a light of the source or of the
// drawing (`anyNode`) one node is enough. A light may be part of a kernel (`block`); while a kernel is pointed at, the
// parts of other kernels stay dark. Lights with one `spot` are one line of a generated text: the line itself and its
// machine code. They are framed when one of them is pointed at.

const lights = new Map();  // pane -> its lights
const index = new Map();  // pane -> node -> its lights
let lightCount = 0;
let shining = [];
let pinned = null;
let pointed = null;

/** Forgets the lights of a pane, before it is drawn anew. */
function clearLights(pane) {
  for (const light of lights.get(pane) || []) light.element.light = undefined;
  lights.set(pane, []);
  index.set(pane, new Map());
}

/** Makes an element a light. `more`: block, anyNode, and `what`, a name for the trail. */
function addLight(pane, element, nodes, more = {}) {
  const light = { pane, element, nodes, order: lightCount, ...more };
  lightCount += 1;
  element.light = light;
  if (!lights.has(pane)) clearLights(pane);
  lights.get(pane).push(light);
  const byNode = index.get(pane);
  for (const n of nodes) push(byNode, n, light);
  return light;
}

/** What a light stands for: its nodes, and of a whole kernel the names by which texts call that. */
function thingOf(light) {
  const thing = { nodes: new Set(light.nodes), from: light, what: light.what || "" };
  if (light.kernel) thing.family = now.family(light.kernel);
  thing.kernel = light.kernel;
  return thing;
}

function nodesThing(nodes, what, kernel) {
  return { nodes: new Set(nodes), what, kernel, family: kernel ? now.family(kernel) : undefined };
}

/** How a light shines for a thing: 2 fully, 1 weakly, 0 not at all. */
function strength(light, thing) {
  if (thing.family && light.block && !thing.family.has(light.block)) return 0;
  let some = 0;
  for (const n of light.nodes) if (thing.nodes.has(n)) some += 1;
  if (!some) return 0;
  return light.anyNode || some === light.nodes.length ? 2 : 1;
}

function lightsOf(pane, thing) {
  const byNode = index.get(pane);
  const found = new Set();
  if (byNode) for (const n of thing.nodes) for (const light of byNode.get(n) || []) found.add(light);
  return found;
}

/** Shines what shares nodes with a thing; null darkens all. */
function shine(thing) {
  for (const element of shining) element.classList.remove("lit", "part", "twin");
  shining = [];
  const counts = new Map();
  if (thing) {
    for (const pane of index.keys()) {
      let count = 0;
      for (const light of lightsOf(pane, thing)) {
        const how = strength(light, thing);
        if (!how) continue;
        light.element.classList.add(how === 2 ? "lit" : "part");
        if (thing.from && light.spot && light.spot === thing.from.spot && light !== thing.from) light.element.classList.add("twin");
        shining.push(light.element);
        count += 1;
      }
      counts.set(pane, count);
    }
    shineEdges(thing);
  }
  markTabs(counts);
  showTrail(thing);
}

/** Pins a thing: it shines until another one is pinned, and each pane scrolls to it. */
function pin(thing, { scroll = true } = {}) {
  const start = performance.now();
  still = mouse;
  framed?.classList.remove("here");
  pinned = thing;
  framed = thing?.from?.element;
  if (thing) {
    for (const pane of panes.values()) pane.draw();
    if (thing.kernel) showKernel(thing.kernel);
    framed?.classList.add("here");
  }
  shine(thing);
  const name = thing && (thing.kernel ? thing.kernel.name : thing.nodes.size === 1 ? now.nodes[[...thing.nodes][0]].name : "");
  history.replaceState(null, "", `#${encodeURIComponent(now.data.name)}${name ? `/${encodeURIComponent(name)}` : ""}`);
  if (thing && scroll) scrollTo([...panes.values()], thing);
  lastAnswer = performance.now() - start;
}

let framed = null;  // the row that was clicked
let lastAnswer = 0;  // milliseconds that the latest pin took

/** Scrolls panes that are in view to their first light that shines fully, or else to the first that shines. */
function scrollTo(among, thing) {
  const isThere = (pane) => thing.from && thing.from.pane === pane.name && thing.from.element.isConnected;
  const shown = among.filter((pane) => pane.isShown() && !isThere(pane));
  for (const pane of shown) if (pane.reveal) pane.reveal(thing);
  const found = shown.map((pane) => firstLight(pane, thing)).filter(Boolean);
  const moves = found.map((light) => wantedScroll(light.element));  // the browser lays out once for all of them
  for (const move of moves) if (move) move.box.scrollTop = move.top;
}

/** The light of a pane to which it scrolls, one of the same `spot` or of a higher `rank` first; drawings move by themselves (`reveal`). */
function firstLight(pane, thing) {
  let best = null, most = 0;
  for (const light of lightsOf(pane.name, thing)) {
    if (light.element instanceof SVGElement) continue;
    const shines = strength(light, thing);
    const isTwin = thing.from?.spot && thing.from.spot === light.spot;
    const how = shines && shines + (light.rank || 0) + (isTwin ? 4 : 0);
    if (how > most || (how && how === most && light.order < best.order)) { best = light; most = how; }
  }
  return best;
}

/** Where the nearest scrolling parent must scroll to, so that an element stands in its upper third; null if it is seen. */
function wantedScroll(element) {
  const box = element.closest(".side, .holders, .view");
  if (!box) return null;
  const place = element.getBoundingClientRect(), around = box.getBoundingClientRect();
  if (place.top >= around.top + 20 && place.bottom <= around.bottom - 20) return null;
  return { box, top: box.scrollTop + place.top - around.top - around.height / 3 };
}

function scrollInside(element) {
  const move = wantedScroll(element);
  if (move) move.box.scrollTop = move.top;
}

function lightAt(event) {
  for (let each = event.target; each && each !== document.body; each = each.parentNode) if (each.light) return each.light;
  return null;
}

let mouse = "", still = "";  // where the mouse is, and where it was at the latest pin

for (const kind of ["pointerdown", "pointermove"]) {
  document.addEventListener(kind, (event) => { mouse = `${event.clientX} ${event.clientY}`; }, true);
}

document.addEventListener("pointerover", (event) => {
  if (event.buttons || event.target.closest?.("dialog")) return;
  if (still === `${event.clientX} ${event.clientY}`) return;  // the page moved below it: nobody points at what lies there
  const light = event.target.closest?.("header, footer, .bar") ? null : lightAt(event);
  if (light === pointed) return;
  pointed = light;
  shine(light && light.nodes.length ? thingOf(light) : pinned);
});

document.addEventListener("click", (event) => {
  if (event.target.closest?.("button, input, select, header, footer, dialog, .bar") || dragged) return;
  const light = lightAt(event);
  if (light && light.nodes.length) pin(thingOf(light));
  else if (!light && event.target.closest?.(".view") && !window.getSelection().toString()) pin(null);
});

// --- the trail: what the thing came from and what it became, in words

function chip(text, title, action, hue) {
  const style = hue === undefined ? "" : ` style="--h:${hue}"`;
  const made = element(`<button class="chip" title="${escapeText(title)}"${style}>${escapeText(text)}</button>`);
  made.addEventListener("click", action);
  return made;
}

function more(list, most) {
  return list.length > most ? [element(`<i>and ${list.length - most} more</i>`)] : [];
}

/** Shows below the panes which lines, nodes, kernels and memory a thing is. */
function showTrail(thing) {
  const trail = document.getElementById("trail");
  if (!thing || !thing.nodes.size) {
    trail.replaceChildren(element(`<i>Point at anything to see what it came from and what it became; click to pin it.
      <kbd>?</kbd> tells the keys.</i>`));
    return;
  }
  const nodes = [...thing.nodes];
  const lines = [...new Set(nodes.filter((n) => now.nodes[n].at).map((n) => now.nodes[n].at.join(":")))].sort(byFileAndLine);
  const parts = [];
  const arrow = () => parts.push(element("<i>→</i>"));
  for (const key of lines.slice(0, 4)) {
    const at = key.split(":").map(Number);
    const text = `${placeText(at)}  ${sourceLine(at)}`;
    parts.push(chip(text, text, () => pin(nodesThing(now.byLine.get(key), placeText(at))), now.isByNode ? undefined : now.hues.get(key)));
  }
  parts.push(...more(lines, 4));
  const modules = [...new Set(nodes.map((n) => now.nodes[n].module).filter(Boolean))];
  const shown = modules.slice(0, 3).join(", ") + (modules.length > 3 ? ` and ${modules.length - 3} more` : "");
  if (modules.length) parts.push(element(`<i title="${escapeText(modules.join("\n"))}">in ${escapeText(shown)}</i>`));
  if (lines.length) arrow();
  const calls = nodes.filter((n) => now.nodes[n].kind === "call" || nodes.length === 1);
  for (const n of calls.slice(0, 5)) {
    const node = now.nodes[n];
    parts.push(chip(node.name, nodeTitle(n), () => pin(nodesThing([n], node.name)), now.hueOf(n)));
  }
  parts.push(...more(calls, 5));
  const kernels = thing.kernel ? [thing.kernel] : kernelsOfNodes(nodes);
  if (kernels.length) arrow();
  for (const kernel of kernels.slice(0, 5)) {
    const time = kernel.seconds ? `, about ${secondsText(Math.min(...kernel.seconds))}` : "";
    const title = `call ${kernel.handle} of the wrapper: kernel ${kernel.name}, ${kernel.symbol || kernel.op}${time}`;
    parts.push(chip(kernelText(kernel), title, () => pin(kernelThing(kernel))));
  }
  parts.push(...more(kernels, 5), ...forwardNodes(nodes), ...otherGraphs(lines));
  trail.replaceChildren(...parts);
}

function nodeTitle(n) {
  const node = now.nodes[n];
  return [`${node.name} = ${node.op}`, node.meta, node.module && `in ${node.module}`,
    node.forward && `of the forward's ${node.forward}`, node.at && placeText(node.at)].filter(Boolean).join("\n");
}

function kernelText(kernel) {
  return `#${kernel.handle || "–"} ${kernel.name} ${kernel.op ? shortOp(kernel.op) : kernel.symbol}`;
}

function kernelsOfNodes(nodes) {
  const found = new Set(nodes.flatMap((n) => now.kernelsOf.get(n) || []));
  return [...found].sort((a, b) => a - b).map((k) => now.data.kernels[k]);
}

function kernelThing(kernel) {
  return nodesThing(kernel.nodes, kernel.name, kernel);
}

/** Of nodes of a backward graph, chips that lead to the forward's nodes that they are the gradients of. */
function forwardNodes(nodes) {
  const forward = views.slice(0, views.indexOf(now)).reverse().find((view) => view.data.role === "forward");
  const names = [...new Set(nodes.map((n) => now.nodes[n].forward).filter(Boolean))];
  const known = forward ? names.filter((name) => forward.byName.has(name) && forward.nodes[forward.byName.get(name)].kind === "call") : [];
  return known.slice(0, 3).map((name) => chip(`of the forward's ${name}`, "the node of the forward graph", () => {
    showGraph(forward);
    pin(nodesThing([forward.byName.get(name)], name));
  }));
}

/** Chips that lead to the other graphs which the same user's lines are in. */
function otherGraphs(lines) {
  const found = [];
  for (const view of views) {
    const count = view === now ? 0 : lines.reduce((sum, key) => sum + (view.byLine.get(key) || []).length, 0);
    if (count) {
      const text = `also ${count} node${count > 1 ? "s" : ""} in ${view.data.name}`;
      found.push(chip(text, "the same lines in that graph", () => {
        showGraph(view);
        pin(nodesThing(lines.flatMap((key) => view.byLine.get(key) || []), "the same lines"));
      }));
    }
  }
  return found.slice(0, 3);
}
