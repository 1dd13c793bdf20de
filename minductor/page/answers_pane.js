// Answers: why two kernels are not one, what each stage noted, and which choices are left.
// `whyNot` gives the sentences of Report.why_not (refusals.py) for the graph that is shown.

/** The reasons why two kernels are not one; null for a name that the graph does not have. */
function whyNot(why, limits, first, second) {
  const places = why.nodes.map(([name, symbol, op, storages]) => ({ name, symbol, op, storages }));
  const into = new Map();
  for (const [name, whole] of why.joined) push(into, name, whole);
  const mine = finalPlaces(places, into, first), others = finalPlaces(places, into, second);
  if (!mine.size || !others.size) return null;
  const common = [...mine].filter((n) => others.has(n));
  if (common.length) return [`${first} and ${second} are one kernel: ${places[Math.min(...common)].name}`];
  const found = new Set();
  const meet = (a, b) => [...a].some((n) => b.has(n));
  for (const [stage, a, b, reason] of why.refusals) {
    const one = finalPlaces(places, into, a), other = finalPlaces(places, into, b);
    if ((meet(one, mine) && meet(other, others)) || (meet(one, others) && meet(other, mine))) found.add(`${stage}: ${reason}`);
  }
  const order = (set) => [...set].sort((a, b) => a - b);
  return found.size ? [...found] : [unrefused(places, limits, order(mine), order(others))];
}

/** The final nodes that a name stands for. */
function finalPlaces(places, into, name) {
  const found = new Set(), seen = new Set([name]), waiting = [name];
  while (waiting.length) {
    const here = waiting.pop();
    const at = places.map((place, n) => n).filter((n) => places[n].name === here);
    at.forEach((n) => found.add(n));
    if (!at.length) {
      for (const whole of into.get(here) || []) if (!seen.has(whole)) { seen.add(whole); waiting.push(whole); }
    }
  }
  if (!found.size) places.forEach((place, n) => { if (place.symbol === name) found.add(n); });
  return found;
}

function unrefused(places, limits, mine, others) {
  for (const n of [...mine, ...others]) {
    if (places[n].op) return `${places[n].name} is a call of ${places[n].op}, which no kernel joins`;
  }
  let best = null;
  for (const a of mine) for (const b of others) if (!best || Math.abs(a - b) < Math.abs(best[0] - best[1])) best = [a, b];
  const [a, b] = best;
  const touched = new Set(places[b].storages);
  const common = places[a].storages.filter((name) => touched.has(name));
  if (!common.length) return "they touch no common data";
  const between = places.slice(Math.min(a, b) + 1, Math.max(a, b));
  const readers = between.filter((place) => place.storages.some((name) => common.includes(name))).length;
  const start = `they share ${common.join(", ")}, and were not weighed: `;
  if (readers >= limits.neighbours || between.length >= limits.distance) {
    return `${start}they are too far apart, with ${between.length} nodes between them, ${readers} of which use it too`;
  }
  return `${start}joining them saves too little`;
}

const whyPane = new Pane("why", "Why not?", "answers", (view, tools) => {
  tools.replaceChildren();
  const why = now.data.why;
  if (!why) {
    view.replaceChildren(nothing("The compile did not come so far that kernels could be fused."));
    return;
  }
  const names = [...new Set([...why.nodes.flatMap(([name, symbol]) => [name, symbol]), ...why.joined.map((row) => row[0])])].filter(Boolean);
  const box = element(`<div class="answer"><h3>Why were these two not fused?</h3>
    <div class="pair"><input id="first" list="kernels" placeholder="such as k3" aria-label="The first kernel" spellcheck="false">
    <span>and</span><input id="second" list="kernels" placeholder="such as k5" aria-label="The second kernel" spellcheck="false">
    <button id="ask">Why?</button></div>
    <datalist id="kernels">${names.map((name) => `<option value="${escapeText(name)}">`).join("")}</datalist>
    <output id="because"></output><div class="tries"></div></div>`);
  view.replaceChildren(box);
  const [first, second] = box.querySelectorAll("input");
  const ask = () => {
    const output = box.querySelector("output");
    const [a, b] = [first.value.trim(), second.value.trim()];
    if (!a || !b) { output.textContent = ""; return; }
    output.innerHTML = answerHtml(a, b);
    const kernels = [a, b].flatMap(finalKernels);
    if (kernels.length) shine(nodesThing(kernels.flatMap((kernel) => kernel.nodes), `${a} and ${b}`));
  };
  box.querySelector("#ask").addEventListener("click", ask);
  [first, second].forEach((input) => input.addEventListener("change", ask));
  [first, second].forEach((input) => input.addEventListener("keydown", (event) => { if (event.key === "Enter") ask(); }));
  const tries = box.querySelector(".tries");
  const pairs = [...new Map(why.refusals.map(([, a, b, reason]) => [`${a} ${b}`, [a, b, reason]])).values()];
  if (pairs.length) tries.append(element(`<p style="color:var(--soft);margin:8px 0 4px">${why.refusals.length} pairs were weighed and refused:</p>`));
  for (const [a, b, reason] of pairs.slice(0, 200)) {
    const line = element(`<button>${escapeText(pairText(a, b))} <span style="color:var(--soft)">${escapeText(reason)}</span></button>`);
    line.addEventListener("click", () => { first.value = a; second.value = b; ask(); });
    tries.append(line);
  }
});

/** The final kernels that a name stands for. */
function finalKernels(name) {
  return now.data.kernels.filter((kernel) => now.family(kernel).has(name));
}

/** The names of two kernels, with the functions or operators that they became unless that is one. */
function pairText(a, b) {
  const [one, other] = [a, b].map((name) => finalKernels(name)[0]);
  if (!one || !other || one === other) return `${a} and ${b}`;
  const [mine, its] = [one, other].map((kernel) => (kernel.op ? shortOp(kernel.op) : kernel.symbol));
  return `${a} (${mine}) and ${b} (${its})`;
}

function answerHtml(a, b) {
  const found = whyNot(now.data.why, doc.limits, a, b);
  const elsewhere = found ? [] : views.filter((view) => view !== now && view.data.why && whyNot(view.data.why, doc.limits, a, b));
  if (found) return `<ul>${found.map((reason) => `<li>${escapeText(reason)}</li>`).join("")}</ul>`;
  const hint = elsewhere.length ? ` The graph ${escapeText(elsewhere[0].data.name)} has both.` : "";
  return `This graph has no kernel of one of these names.${hint}`;
}

// --- notes and choices

let noteFilter = "";

const notesPane = new Pane("notes", "Notes", "answers", (view, tools) => {
  tools.replaceChildren();
  const failure = now.data.failure ? `<h3>The compile failed</h3><pre>${escapeText(now.data.failure)}</pre>` : "";
  const stages = now.data.stages.filter((stage) => stage.notes.length);
  const parts = stages.map((stage) => `<h3 id="notes-${escapeText(stage.name)}">${escapeText(stage.name)} <small>${secondsText(stage.seconds)}</small></h3>`
    + `<ul>${stage.notes.map((note) => `<li>${noteHtml(note)}</li>`).join("")}</ul>`);
  view.replaceChildren(element(`<div class="answer">${failure}${parts.join("") || "<p>No stage noted anything.</p>"}</div>`));
  view.querySelectorAll("[data-kernel-name]").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault();
    const [kernel] = finalKernels(link.dataset.kernelName);
    if (kernel) pin(kernelThing(kernel));
  }));
});

/** A note, in which the names of kernels lead to them. */
function noteHtml(note) {
  return escapeText(note).replace(/\b([kx]\d+)\b/g, '<a href="#" data-kernel-name="$1">$1</a>');
}

function showNotesOf(stage) {
  const head = document.getElementById(`notes-${stage}`);
  if (head) scrollInside(head);
}

const choicesPane = new Pane("choices", "Choices", "answers", (view, tools) => {
  tools.replaceChildren();
  const decided = now.data.kernels.flatMap((kernel) => (kernel.decisions || []).map((decision) => [kernel, decision]));
  const open = now.data.choices || [];
  const rows = decided.map(([kernel, d]) => `<tr data-n=""><td><code>${escapeText(kernel.name)}</code></td><td>${escapeText(d.stage)}</td>`
    + `<td><b>${escapeText(d.taken)}</b> of ${escapeText(d.options.join(", "))}</td><td>${escapeText(d.by)}</td><td>${escapeText(d.figures)}</td></tr>`);
  const later = open.map(([symbol, id, affects, standard, options]) => `<tr><td><code>${escapeText(symbol)}</code></td><td>${escapeText(id)}</td>`
    + `<td><b>${escapeText(standard)}</b> of ${escapeText(options.join(", "))}</td><td>${affects === "bits" ? "changes bits" : "time only"}</td></tr>`);
  const none = decided.length || open.length ? "" : "<p>Each kernel had one way to go.</p>";
  view.replaceChildren(element(`<div class="answer">${none}${rows.length ? `<h3>Decided</h3><table><tbody>${rows.join("")}</tbody></table>` : ""}
    ${later.length ? `<h3>Left to the tuner or to the sizes of a call</h3><table><tbody>${later.join("")}</tbody></table>` : ""}</div>`));
  view.querySelectorAll("tr[data-n]").forEach((row, n) => addLight("choices", row, decided[n][0].nodes, { block: decided[n][0].name, kernel: decided[n][0], what: decided[n][0].name }));
});
