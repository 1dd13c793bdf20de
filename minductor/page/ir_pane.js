// Two stages side by side: which lines went, which came.
// `differences` is the algorithm of Myers (1986): the shortest way from one list of numbers to another.

const CONTEXT = 3;
let leftStage = null, rightStage = null;
let onlyChanges = false;

/** The stages that have a text. */
function textStages() {
  return now.data.stages.filter((stage) => now.linesOf(stage).length && (stage.lines || stage.same));
}

/** The stage before `stage` whose text differs from its own; the stage itself if there is none. */
function changedBefore(stage) {
  let n = stage.number;
  while (n > 0 && now.data.stages[n].same) n -= 1;
  for (n -= 1; n >= 0; n -= 1) if (now.data.stages[n].lines) return now.data.stages[n];
  return stage;
}

function firstStages() {
  const stages = textStages();
  rightStage = stages.find((stage) => stage.name === "fuse") || stages[stages.length - 1] || null;
  leftStage = rightStage && changedBefore(rightStage);
}

/** Shows a stage on the right, and on the left the one that it changed. */
function showStage(stage) {
  if (!now.linesOf(stage).length) {
    showTab("notes");
    showNotesOf(stage.name);
    return;
  }
  rightStage = stage;
  leftStage = changedBefore(stage);
  showTab("ir");
  irPane.redraw();
  markStages();
}

/** The next or the previous stage that changes the text. */
function stepStage(step) {
  const stages = textStages().filter((stage) => stage.lines);
  let at = stages.indexOf(rightStage);
  if (at < 0) at = stages.findIndex((stage) => stage.number > rightStage.number) - 1;
  const next = stages[Math.max(0, Math.min(stages.length - 1, at + step))];
  if (next) showStage(next);
}

const irPane = new Pane("ir", "IR", "ir", (view, tools) => {
  if (!rightStage || !now.data.stages.includes(rightStage)) firstStages();
  if (!rightStage) {
    tools.replaceChildren();
    view.replaceChildren(nothing("This graph came from the cache, so no stage ran. Compile it with another cache_dir to see its stages."));
    return;
  }
  const select = (chosen, change) => {
    const made = element(`<select>${textStages().map((stage) =>
      `<option value="${stage.number}"${stage === chosen ? " selected" : ""}>${escapeText(stage.name)}${stage.same ? " =" : ""}</option>`).join("")}</select>`);
    made.addEventListener("change", () => { change(now.data.stages[Number(made.value)]); irPane.redraw(); markStages(); });
    return made;
  };
  const left = select(leftStage, (stage) => { leftStage = stage; });
  const right = select(rightStage, (stage) => { rightStage = stage; });
  left.title = "The stage on the left";
  right.title = "The stage on the right";
  const back = element('<button class="wide" title="The stage before that changes something ([)">◀</button>');
  const on = element('<button class="wide" title="The next stage that changes something (])">▶</button>');
  back.addEventListener("click", () => stepStage(-1));
  on.addEventListener("click", () => stepStage(1));
  const only = element(`<label title="Only what changed (c)"><input type="checkbox"${onlyChanges ? " checked" : ""}> changes</label>`);
  only.firstElementChild.addEventListener("change", toggleChanges);
  const [a, b, counts] = aligned();
  tools.replaceChildren(element(`<span>${counts}</span>`), back, left, element("<span>→</span>"), right, on, only);
  const sides = element('<div class="sides"><div class="side"></div><div class="side"></div></div>');
  sides.children[0].append(rowsOf("ir", a));
  sides.children[1].append(rowsOf("ir", b));
  view.replaceChildren(sides);
  together(sides.children[0], sides.children[1]);
  const first = view.querySelector(".r.new, .r.gone");
  if (first && !pinned) scrollInside(first);
});

function toggleChanges() {
  onlyChanges = !onlyChanges;
  irPane.redraw();
}

/** Scrolls both sides down together. */
function together(a, b) {
  let leader = null;
  const follow = (one, other) => {
    one.addEventListener("scroll", () => {
      if (leader === other) return;
      leader = one;
      other.scrollTop = one.scrollTop;
      requestAnimationFrame(() => requestAnimationFrame(() => { if (leader === one) leader = null; }));
    });
  };
  follow(a, b);
  follow(b, a);
}

/** The rows of both sides, of equal number: where one side has nothing, a blank row. */
function aligned() {
  const a = sideLines(leftStage, 0), b = sideLines(rightStage, 2);
  const same = differences(a.map((line) => now.textIds[line.id]), b.map((line) => now.textIds[line.id]));
  const left = [], right = [];
  let i = 0, j = 0, gone = 0, made = 0;
  const blank = () => ({ html: "", kind: "none", number: "" });
  const flush = (m, n) => {
    for (; i < m || j < n;) {
      if (i < m) { left.push({ ...a[i], kind: "gone" }); gone += 1; } else left.push(blank());
      if (j < n) { right.push({ ...b[j], kind: "new" }); made += 1; } else right.push(blank());
      i += i < m;
      j += j < n;
    }
  };
  for (const [m, n] of same) {
    flush(m, n);
    left.push(a[i]);
    right.push(b[j]);
    i += 1;
    j += 1;
  }
  flush(a.length, b.length);
  const counts = leftStage === rightStage ? "" : `<span style="color:var(--gone-edge)">−${gone}</span> <span style="color:var(--new-edge)">+${made}</span>`;
  return onlyChanges ? [folded(left, right), folded(right, left), counts] : [left, right, counts];
}

function sideLines(stage, rank) {
  const blocks = now.blocksOf(stage);
  let block = 0;
  return now.linesOf(stage).map((id, n) => {
    while (block < blocks.length && blocks[block][2] <= n) block += 1;
    const name = block < blocks.length && blocks[block][1] <= n ? blocks[block][0] : undefined;
    const isHead = name !== undefined && blocks[block][1] === n;
    const kernel = isHead ? now.data.kernels.find((each) => each.name === name) : undefined;
    return { id, html: irHtml(now.data.texts[id]), nodes: now.data.of[id], number: n + 1, block: name, kernel, rank, what: now.data.texts[id].trim() };
  });
}

/** The rows with long runs of unchanged ones folded. */
function folded(mine, others) {
  const isNear = new Array(mine.length).fill(false);
  mine.forEach((line, n) => {
    if (line.kind || others[n].kind) for (let m = Math.max(0, n - CONTEXT); m <= Math.min(mine.length - 1, n + CONTEXT); m += 1) isNear[m] = true;
  });
  const found = [];
  for (let n = 0; n < mine.length;) {
    if (isNear[n]) { found.push(mine[n]); n += 1; continue; }
    let end = n;
    while (end < mine.length && !isNear[end]) end += 1;
    found.push({ fold: mine.slice(n, end), text: `${end - n} equal lines` });
    n = end;
  }
  return found;
}

/** The pairs of places at which two lists of numbers are equal, in order. */
function differences(a, b) {
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const pairs = [];
  for (let n = 0; n < head; n += 1) pairs.push([n, n]);
  for (const [i, j] of myers(a.slice(head, a.length - tail), b.slice(head, b.length - tail))) pairs.push([i + head, j + head]);
  for (let n = tail; n > 0; n -= 1) pairs.push([a.length - n, b.length - n]);
  return pairs;
}

function myers(a, b) {
  const most = a.length + b.length;
  const far = new Int32Array(2 * most + 2);
  const steps = [];
  for (let d = 0; d <= most; d += 1) {
    steps.push(far.slice(most - d, most + d + 2));  // what the way back asks of step d
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && far[most + k - 1] < far[most + k + 1]);
      let i = down ? far[most + k + 1] : far[most + k - 1] + 1;
      let j = i - k;
      while (i < a.length && j < b.length && a[i] === b[j]) { i += 1; j += 1; }
      far[most + k] = i;
      if (i >= a.length && j >= b.length) return wayBack(steps, a, b, d, k);
    }
  }
  return [];
}

function wayBack(steps, a, b, d, k) {
  const pairs = [];
  let i = a.length, j = b.length;
  for (; d > 0; d -= 1) {
    const before = steps[d], at = (key) => before[key + d];
    const down = k === -d || (k !== d && at(k - 1) < at(k + 1));
    const from = down ? k + 1 : k - 1;
    const x = at(from), y = x - from;
    const start = down ? x : x + 1;
    while (i > start) { i -= 1; j -= 1; pairs.push([i, j]); }
    i = x;
    j = y;
    k = from;
  }
  while (i > 0) { i -= 1; j -= 1; pairs.push([i, j]); }
  return pairs.reverse();
}
