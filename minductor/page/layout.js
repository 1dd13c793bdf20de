// The cells with their tabs, the gutters between them, the theme, the keyboard and the help.

const TABS = { source: ["source"], graph: ["graph", "memory"], kernel: ["kernel"], answers: ["why", "notes", "choices"], ir: ["ir"], wrapper: ["wrapper", "schedule", "machine"] };

/** Fills the cells with tabs and views. */
function makeCells() {
  for (const [cell, names] of Object.entries(TABS)) {
    const box = document.getElementById(`cell-${cell}`);
    const bar = element('<div class="bar" role="tablist"></div>');
    box.append(bar);
    for (const name of names) {
      const pane = panes.get(name);
      pane.tab = element(`<button class="tab" role="tab" data-tab="${name}">${escapeText(pane.title)}<sup></sup></button>`);
      pane.tab.addEventListener("click", () => showTab(name));
      bar.append(pane.tab);
      pane.view = element(`<div class="view" data-view="${name}" tabindex="0"></div>`);
      pane.tools = element('<div class="tools"></div>');
      box.append(pane.view);
    }
    for (const name of names) bar.append(panes.get(name).tools);
    const wide = element('<button class="wide" title="Large or small (f)">⤢</button>');
    wide.addEventListener("click", () => enlarge(box));
    bar.append(wide);
    selectTab(names[0]);
  }
}

function selectTab(name) {
  const cell = panes.get(name).cell;
  for (const each of TABS[cell]) {
    const pane = panes.get(each), isIt = each === name;
    pane.view.hidden = !isIt;
    pane.tools.hidden = !isIt;
    pane.tools.style.display = isIt ? "" : "none";
    pane.tab.setAttribute("aria-selected", isIt);
  }
}

/** Shows a tab, draws it, and lights in it what is pinned. */
function showTab(name) {
  const pane = panes.get(name), grid = document.getElementById("grid");
  const cell = document.getElementById(`cell-${pane.cell}`);
  if (grid.classList.contains("whole") && !cell.classList.contains("whole")) enlarge(cell);
  selectTab(name);
  pane.draw();
  if (pinned) {
    shine(pinned);
    scrollTo([pane], pinned);
  }
}

/** Puts on each tab that is out of view how many lights in it would shine. */
function markTabs(counts) {
  for (const pane of panes.values()) {
    const count = counts.get(pane.name) || 0;
    pane.tab.lastElementChild.textContent = count && !pane.isShown() ? count : "";
  }
}

function enlarge(cell) {
  const grid = document.getElementById("grid"), isWhole = cell.classList.contains("whole");
  grid.querySelectorAll(".cell").forEach((each) => each.classList.remove("whole"));
  grid.classList.toggle("whole", !isWhole);
  cell.classList.toggle("whole", !isWhole);
  if (pinned) scrollTo([...panes.values()], pinned);
}

// --- gutters

function listenToGutters() {
  const grid = document.getElementById("grid");
  const place = () => {
    const cell = (name) => document.getElementById(`cell-${name}`);
    const left = cell("source"), right = cell("kernel");
    document.getElementById("gutter-left").style.left = `${left.offsetLeft + left.offsetWidth}px`;
    document.getElementById("gutter-right").style.left = `${right.offsetLeft - 8}px`;
    document.getElementById("gutter-down").style.top = `${left.offsetTop + left.offsetHeight}px`;
  };
  const moves = {
    "gutter-left": (event, box) => grid.style.setProperty("--left", `${clamp((100 * (event.clientX - box.left)) / box.width)}%`),
    "gutter-right": (event, box) => grid.style.setProperty("--right", `${clamp((100 * (box.right - event.clientX)) / box.width)}%`),
    "gutter-down": (event, box) => grid.style.setProperty("--down", `${clamp((100 * (event.clientY - box.top)) / box.height)}%`),
  };
  for (const [id, move] of Object.entries(moves)) {
    const gutter = document.getElementById(id);
    gutter.addEventListener("pointerdown", (event) => { gutter.setPointerCapture(event.pointerId); event.preventDefault(); });
    gutter.addEventListener("pointermove", (event) => {
      if (!event.buttons) return;
      move(event, grid.getBoundingClientRect());
      place();
    });
  }
  new ResizeObserver(place).observe(grid);
  place();
}

function clamp(percent) {
  return Math.max(8, Math.min(84, percent));
}

// --- dark and light

function setTheme(name) {
  document.documentElement.dataset.theme = name;
}

function startTheme() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", toggleTheme);
}

function toggleTheme() {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}

// --- keyboard

const KEYS = [
  ["/", "search everything", () => { searchBox.focus(); searchBox.select(); }],
  ["[", "the stage before that changes something", () => stepStage(-1)],
  ["]", "the next stage that changes something", () => stepStage(1)],
  ["c", "only what changed, or all lines", toggleChanges],
  ["j", "the next kernel or call", () => stepKernel(1)],
  ["k", "the kernel or call before", () => stepKernel(-1)],
  ["g", "the ATen graph", () => showTab("graph")],
  ["m", "the memory", () => showTab("memory")],
  ["s", "the schedules and what they cost", () => showTab("schedule")],
  ["w", "why two kernels are not one", () => { showTab("why"); document.getElementById("first")?.focus(); }],
  ["a", "the machine code", () => showTab("machine")],
  ["n", "the next graph", () => showGraph(views[(views.indexOf(now) + 1) % views.length])],
  ["f", "the pane under the mouse, large or small", () => { const cell = document.querySelector(".cell:hover, .cell.whole"); if (cell) enlarge(cell); }],
  ["0", "all of the drawing", fit],
  ["t", "dark or light", toggleTheme],
  ["Escape", "unpin", () => pin(null)],
  ["?", "this help", showHelp],
];

function stepKernel(step) {
  const kernels = now.data.kernels;
  if (!kernels.length) return;
  const at = pinned && pinned.kernel ? kernels.indexOf(pinned.kernel) : step > 0 ? -1 : 0;
  pin(kernelThing(kernels[(at + step + kernels.length) % kernels.length]));
}

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, dialog")) {
      if (event.key === "Escape") event.target.blur?.();
      return;
    }
    const row = KEYS.find(([key]) => key === event.key);
    if (!row) return;
    event.preventDefault();
    row[2]();
  });
  document.getElementById("help").addEventListener("click", showHelp);
}

function showHelp() {
  const manual = document.getElementById("manual");
  const colours = doc.highlighted ? "Pygments (BSD-2-Clause) found the keywords, " : "";
  manual.innerHTML = `<h2>Walk through a compile</h2>
    <p>Point at a line, a node, a bar or a kernel: everything that it came from and that it became lights up in all
    panes. Click to pin it, and each pane scrolls to it. Equal colours are one line of your program,
    or one operator where few lines made the graph.</p>
    <dl>${KEYS.map(([key, text]) => `<dt><kbd>${escapeText(key)}</kbd></dt><dd>${escapeText(text)}</dd>`).join("")}</dl>
    <small>Written by minductor ${escapeText(doc.minductor)} (BSD-3-Clause). It holds no text of another project;
    ${colours}networkx (BSD-3-Clause) sorted the drawing into layers. It loads nothing.</small>
    <form method="dialog"><p><button>Close</button></p></form>`;
  manual.showModal();
}
