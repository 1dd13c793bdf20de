// Kernels: their generated text, their machine code, the wrapper that calls them, and their schedules with the costs.

/** The rows of a generated text; what no kernel uses by itself is folded. */
function codeRows(pane, code) {
  const of = expand(code.runs);
  const handles = new Map((code.handles || []).map(([line, handle]) => [line, handle]));
  const functions = code.functions || [];
  const lines = code.lines.map((text, n) => {
    const inside = functions.find(([, first, end]) => n >= first && n < end);
    const handle = handles.get(n);
    const called = handle === undefined ? undefined : now.data.kernels.find((kernel) => kernel.handle === handle);
    const isHead = inside && of[n].length && (n === inside[1] || code.lines[n].includes(` ${inside[0]}(`));
    const kernel = called || (isHead ? now.data.kernels.find((each) => each.symbol === inside[0]) : undefined);
    const block = called ? `#${handle}` : inside && inside[0];
    return { html: markedHtml(text, code.marks[n]), nodes: of[n], number: n + 1, block, kernel, what: text.trim(), spot: `${code.file}:${n}` };
  });
  const first = functions.length ? Math.min(...functions.map((row) => row[1])) : 0;
  if (first >= 12) return rowsOf(pane, [{ fold: lines.slice(0, first), text: `${first} lines of functions that the kernels call` }, ...lines.slice(first)]);
  const call = pane === "wrapper" ? code.lines.findIndex((text) => text.startsWith("def call(")) : 0;
  return rowsOf(pane, call < 8 ? lines : [{ fold: lines.slice(0, call), text: `${call} lines of imports and names` }, ...lines.slice(call)]);
}

function codeView(pane, files, empty) {
  return (view, tools) => {
    const list = files();
    tools.replaceChildren();
    if (!list.length) {
      view.replaceChildren(nothing(empty));
      return;
    }
    const functions = list.flatMap((code) => (code.functions || []).map(([symbol]) => symbol));
    if (functions.length) {
      const select = element(`<select title="Go to a kernel"><option value="">${functions.length === 1 ? "1 function" : `${functions.length} functions`}…</option>${functions.map((symbol) => `<option>${escapeText(symbol)}</option>`).join("")}</select>`);
      select.addEventListener("change", () => {
        const kernel = now.data.kernels.find((each) => each.symbol === select.value);
        if (kernel) pin(kernelThing(kernel));
      });
      tools.replaceChildren(select);
    }
    view.replaceChildren(...list.flatMap((code) => [
      ...(list.length > 1 ? [element(`<div class="bar">${escapeText(code.file)}</div>`)] : []),
      codeRows(pane, code),
    ]));
  };
}

const kernelPane = new Pane("kernel", "Kernel", "kernel",
  codeView("kernel", () => now.data.code, "This graph has no kernels of its own: libraries compute all of it."));
const wrapperPane = new Pane("wrapper", "Wrapper", "wrapper",
  codeView("wrapper", () => now.data.wrapper, "There is no wrapper: the compile did not come so far."));

const machinePane = new Pane("machine", "Machine code", "wrapper", (view, tools) => {
  tools.replaceChildren();
  if (!now.data.machine.length) {
    view.replaceChildren(nothing("There is no machine code: nothing was compiled for this machine, or it has no objdump."));
    return;
  }
  view.replaceChildren(...now.data.machine.map((row) => {
    const kernels = now.data.kernels.filter((each) => each.symbol === row.symbol);
    const nodes = [...new Set(kernels.flatMap((kernel) => kernel.nodes))].sort((a, b) => a - b);
    const box = element(`<details class="card"><summary><code>${escapeText(row.symbol)}</code> ${row.lines.length + row.more} lines</summary></details>`);
    addLight("machine", box, nodes, { block: row.symbol, kernel: kernels[0], what: row.symbol });
    box.fill = () => fillMachine(box, row);
    box.addEventListener("toggle", () => { if (box.open) box.fill(); });
    return box;
  }));
}, {
  /** Opens the machine code of the generated line that is pointed at, or of the kernel. */
  reveal(thing) {
    const names = [thing.from?.block, thing.kernel?.symbol];
    const boxes = [...this.view.querySelectorAll("details")];
    const box = boxes[now.data.machine.findIndex((row) => names.includes(row.symbol))];
    if (!box) return;
    box.open = true;
    box.fill();
    shine(thing);
  },
});

/** Puts the rows of a kernel's machine code into its box, once; each has the nodes of the kernel's line it computes. */
function fillMachine(box, { symbol, file, lines, at, more }) {
  if (box.children.length > 1) return;
  const code = now.data.code.find((each) => each.file === file);
  const of = code ? expand(code.runs) : [];
  const places = expand(at.flatMap((count, n) => (n % 2 ? [] : [[count, at[n + 1]]])));
  const rows = lines.map((text, n) => ({ html: machineHtml(text), nodes: of[places[n]], block: symbol, spot: `${file}:${places[n]}`, what: text.trim() }));
  box.append(rowsOf("machine", rows));
  if (more) box.append(nothing(`${more} more lines are left out.`));
}

function machineHtml(text) {
  return escapeText(text).replace(/^(\s*[0-9a-f]+  )([a-z][\w.]*)/, '<span class="k5">$1</span><span class="k1">$2</span>')
    .replace(/\b([xyz]mm\d+|[re]?[abcd]x|[re]?[sd]i|r\d+[dwb]?|[re][sb]p|%[rfp]d?\d+)\b/g, '<span class="k2">$1</span>');
}

// --- schedules

const schedulePane = new Pane("schedule", "Schedule", "wrapper", (view, tools) => {
  tools.replaceChildren();
  if (!now.data.kernels.length) {
    view.replaceChildren(nothing("There are no kernels."));
    return;
  }
  const longest = Math.max(...now.data.kernels.map(secondsOf), 1e-12);
  const box = element('<div class="cards"></div>');
  for (const kernel of now.data.kernels) {
    const card = element(kernel.op ? callHtml(kernel) : scheduleHtml(kernel, longest));
    addLight("schedule", card, kernel.nodes, { block: kernel.name, kernel, what: kernel.name });
    box.append(card);
  }
  view.replaceChildren(box);
});

function secondsOf(kernel) {
  return kernel.seconds ? Math.min(...kernel.seconds) : 0;
}

function callHtml(kernel) {
  return `<div class="card" data-kernel="${escapeText(kernel.name)}"><h3>${escapeText(kernel.name)} <code>${escapeText(kernel.op)}</code>`
    + `<span class="end">#${kernel.handle}</span></h3><p>a call of the library: ${escapeText(kernel.reason)}</p></div>`;
}

function scheduleHtml(kernel, longest) {
  const seconds = secondsOf(kernel);
  const time = seconds ? `about ${secondsText(seconds)}` : "";
  const parts = groupBy(kernel.joined || [], (row) => row[0]);
  const part = ([, name, why]) => `<span title="${escapeText(why || "")}">${escapeText(name)}</span>`;
  const joined = [...parts].map(([stage, rows]) => `${escapeText(stage ? `${stage}: ` : "")}${rows.map(part).join(", ")}`).join("; ");
  const bound = kernel.bound ? `, bound by ${kernel.bound[kernel.bound.length - 1]}` : "";
  const bar = seconds ? `<div class="ways"><span></span><div class="amount" style="width:${Math.max(1, (100 * seconds) / longest)}%"></div><span></span></div>` : "";
  return `<div class="card" data-kernel="${escapeText(kernel.name)}"><h3>${escapeText(kernel.name)} <code>${escapeText(kernel.symbol || "")}</code>`
    + `<span class="end">#${kernel.handle || "–"} ${time}</span></h3>`
    + `<p>${escapeText(kernel.axes || "")}${kernel.recipe ? ` · recipe <b>${escapeText(kernel.recipe)}</b>` : ""}${bound}</p>`
    + (joined ? `<details><summary>has in it ${joined}</summary><ul>${kernel.joined.map(([stage, name, why]) => `<li>${escapeText(`${name}, by ${stage || "an earlier compile"}${why ? `: ${why}` : ""}`)}</li>`).join("")}</ul></details>` : "")
    + (kernel.decisions.length ? kernel.decisions.map(decisionHtml).join("") : onlyOne(kernel)) + bar.replace('class="ways"', 'class="ways" title="Its share of the slowest kernel"')
    + (kernel.notes || []).map((note) => `<p>${escapeText(note)}</p>`).join("")
    + (kernel.schedule ? `<details><summary>loops</summary><pre>${kernel.schedule.map(irHtml).join("\n")}</pre></details>` : "") + "</div>";
}

function onlyOne(kernel) {
  return kernel.recipe ? `<p class="second">There was no second schedule: <b>${escapeText(kernel.recipe)}</b> is the only legal recipe.</p>` : "";
}

/** A decision between ways: bars of their seconds, and by how much the second one is slower. */
function decisionHtml(decision) {
  const head = `<p>${escapeText(decision.stage || "variant")}: <b>${escapeText(decision.taken)}</b> of ${escapeText(decision.options.join(", "))}, by ${escapeText(decision.by)}</p>`;
  if (!decision.prices) return head + (decision.figures ? `<p>${escapeText(decision.figures)}</p>` : "");
  const names = Object.keys(decision.prices).sort((a, b) => (b === decision.taken) - (a === decision.taken) || decision.losses[a] - decision.losses[b]);
  const price = (name) => Math.min(...decision.prices[name]);
  const most = Math.max(...names.map(price));
  const bars = names.map((name) => `<span class="${name === decision.taken ? "taken" : ""}">${escapeText(name)}</span>`
    + `<div class="amount" style="width:${(100 * price(name)) / most}%"></div><span>${pricesText(decision.prices[name])}</span>`).join("");
  return `${head}<div class="ways">${bars}</div>${secondHtml(decision, names)}`;
}

function pricesText(prices) {
  return prices.length === 2 ? `${secondsText(prices[0])}, ${secondsText(prices[1])} in parallel` : prices.map(secondsText).join(", ");
}

function secondHtml(decision, names) {
  const [first, second] = names;
  if (!second) return "";
  const times = decision.losses[second] / decision.losses[first];
  const prices = decision.prices[second];
  const where = prices.length === 2 ? [" on one thread", " in parallel"] : prices.map(() => "");
  const by = prices.map((price, n) => price - decision.prices[first][n])
    .map((more, n) => `${more < 0 ? "−" : "+"}${secondsText(Math.abs(more))}${where[n]}`).join(", ");
  const slower = times < 2 ? `slower by ${(100 * times - 100).toFixed(1)}%` : `${times.toFixed(1)} times as slow`;
  const most = prices.length > 1 ? " where it loses most" : "";
  return `<p class="second">Second: <b>${escapeText(second)}</b>, <b>${slower}</b>${most} (${by})</p>`;
}

/** Marks the card of a kernel as the chosen one, where it is in view. */
function showKernel(kernel) {
  const card = panes.get("schedule").isShown() && document.querySelector(`[data-kernel="${CSS.escape(kernel.name)}"]`);
  if (card) scrollInside(card);
}
