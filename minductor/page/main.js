// Starts the page: the selector of graphs, the time line, and the first graph.

const views = doc.graphs.map((data) => new GraphView(data));

/** Shows a graph in all panes. */
function showGraph(view) {
  if (view === now) return;
  if (now) shine(null);
  now = view;
  pinned = null;
  pointed = null;
  drawing = null;
  rightStage = null;
  for (const pane of panes.values()) {
    clearLights(pane.name);
    pane.view.replaceChildren();
  }
  document.querySelectorAll("#graphs button").forEach((button, n) => button.setAttribute("aria-selected", views[n] === now));
  showFacts();
  showTimeline();
  for (const pane of panes.values()) pane.redraw();
  markStages();
  shine(null);
  document.title = `${now.data.name} – minductor`;
}

function showFacts() {
  const { counts, memory, target, stages, failure } = now.data;
  const seconds = stages.reduce((sum, stage) => sum + stage.seconds, 0);
  const parts = [target && `for <b>${escapeText(target)}</b>`];
  if (counts) {
    parts.push(`<b>${counts.kernels}</b> kernels`, `<b>${counts.calls}</b> calls of operators`, `<b>${bytesText(counts.bytes)}</b> moved`);
    if (memory.peak !== null) parts.push(`peak <b>${bytesText(memory.peak)}</b>`);
  }
  parts.push(`compiled in <b>${secondsText(seconds)}</b>`);
  const moved = Object.entries(now.data.checked).find(([, row]) => row[1]);
  if (moved) parts.push(`<b style="color:var(--gone-edge)">the numbers moved in ${escapeText(moved[0])}</b>`);
  else if (Object.keys(now.data.checked).length) parts.push("every stage gives eager's numbers");
  if (failure) parts.push('<b style="color:var(--gone-edge)">failed</b>');
  document.getElementById("facts").innerHTML = parts.filter(Boolean).join(" · ");
}

/** A bar for each stage, as wide as it took long. */
function showTimeline() {
  const stages = now.data.stages.filter((stage) => stage.name !== "graph" || now.data.stages.length === 1);
  const total = stages.reduce((sum, stage) => sum + stage.seconds, 0) || 1;
  const bars = stages.map((stage) => {
    const checked = now.data.checked[stage.name];
    const counts = Object.entries(stage.counts).map(([name, count]) => `${count} ${name}`).join(", ");
    const title = `${stage.name}: ${secondsText(stage.seconds)}, ${Math.round((100 * stage.seconds) / total)}%${counts ? `\n${counts}` : ""}${stage.same ? "\nit changes nothing" : ""}${stage.notes.length ? `\n${stage.notes.length} notes` : ""}${checked ? `\n${checked[0]}` : ""}`;
    const bar = element(`<button data-stage="${escapeText(stage.name)}" class="${stage.same ? "same" : ""}${checked && checked[1] ? " wrong" : ""}" title="${escapeText(title)}">${escapeText(stage.name)}</button>`);
    bar.style.flexGrow = Math.max(0.004, stage.seconds / total) * 1000;
    bar.addEventListener("click", () => showStage(stage));
    bar.stage = stage;
    return bar;
  });
  document.getElementById("timeline").replaceChildren(...bars);
}

/** Marks on the time line the two stages that are side by side. */
function markStages() {
  for (const bar of document.querySelectorAll("#timeline button")) {
    bar.classList.toggle("left", bar.stage === leftStage);
    bar.classList.toggle("right", bar.stage === rightStage);
  }
}

/** Goes to GRAPH/NAME, where the name is that of a kernel, of a stage or of an ATen node: what stands behind # in a link. */
function goTo(place) {
  const [graph, name] = place.split("/");
  showGraph(views.find((view) => view.data.name === graph) || now || views[0]);
  const kernel = name && now.data.kernels.find((each) => now.family(each).has(name));
  const stage = now.data.stages.find((each) => each.name === name);
  if (kernel) pin(kernelThing(kernel));
  else if (stage) showStage(stage);
  else if (now.byName.has(name)) pin(nodesThing([now.byName.get(name)], name));
}

startTheme();
makeCells();
document.getElementById("graphs").append(...views.map((view) => {
  const button = element(`<button role="tab">${escapeText(view.data.name)}</button>`);
  button.addEventListener("click", () => showGraph(view));
  return button;
}));
listenToGutters();
listenToKeys();
if (views.length) goTo(decodeURIComponent(location.hash.slice(1)));
else document.getElementById("facts").textContent = "no graph was compiled";
window.addEventListener("hashchange", () => goTo(decodeURIComponent(location.hash.slice(1))));
// For those who ask a page from a console: why(GRAPH, "k3", "k5"), and the milliseconds that the latest click took.
window.minductor = {
  doc, views, whyNot, differences,
  why: (graph, a, b) => whyNot(doc.graphs[graph].why, doc.limits, a, b),
  answer: () => lastAnswer,
};
