// The plan's memory: for each call what each storage holds, stacked, and who holds most.

let callShown = 0;

const memoryPane = new Pane("memory", "Memory", "graph", (view, tools) => {
  tools.replaceChildren();
  const memory = now.data.memory;
  if (!memory || !memory.calls.length) {
    view.replaceChildren(nothing("This graph makes no call, so it holds nothing."));
    return;
  }
  const held = liveStorages(memory);
  const totals = held.map((list) => list.reduce((sum, storage) => sum + (storage.bytes || 0), 0));
  const peakCall = totals.indexOf(Math.max(...totals));
  callShown = peakCall;
  const box = element(`<div class="memory"><p>${peakHtml(memory, held, totals, peakCall)}</p>
    <svg preserveAspectRatio="none" viewBox="0 0 1000 300"></svg><div class="holders"></div></div>`);
  view.replaceChildren(box);
  drawBars(box.querySelector("svg"), memory, held, totals);
  showHolders(memory, held, totals);
});

/** For each call the storages that live during it and are the call's to free, the largest first. */
function liveStorages(memory) {
  return memory.calls.map((_, n) => memory.storages
    .filter((s) => s.owner !== "lent" && s.birth <= n + 1 && (s.death === null || s.death >= n + 1))
    .sort((a, b) => (b.bytes || 0) - (a.bytes || 0)));
}

function peakHtml(memory, held, totals, at) {
  if (memory.peak === null) return "The sizes of this graph are not numbers, so its memory is not known.";
  const list = held[at];
  const most = list[0];
  const start = `At most <b id="peak" data-bytes="${memory.peak}">${bytesText(memory.peak)}</b> at once, at call ${at + 1} of ${memory.calls.length} (<code>${escapeText(memory.calls[at])}</code>).`;
  if (!most) return start;
  const from = most.nodes.length ? `, made by ${escapeText([...new Set(most.nodes.map((n) => shortOp(now.nodes[n].op)))].slice(0, 3).join(", "))}` : "";
  return `${start} <b id="most">${escapeText(most.names[0])}</b> holds the most: ${bytesText(most.bytes)}, ${Math.round((100 * most.bytes) / totals[at])}%${from}.${lineHtml(list, totals[at])}`;
}

/** The user's line whose values hold the most at a call. */
function lineHtml(list, total) {
  const sums = new Map();
  for (const storage of list) {
    const at = storage.nodes.map((n) => now.nodes[n].at).find(Boolean);
    if (at) sums.set(at.join(":"), (sums.get(at.join(":")) || 0) + (storage.bytes || 0));
  }
  const [best] = [...sums].sort((a, b) => b[1] - a[1]);
  if (!best) return "";
  const place = best[0].split(":").map(Number);
  return ` Of all lines, <code>${escapeText(placeText(place))}</code> holds the most: ${bytesText(best[1])}, ${Math.round((100 * best[1]) / total)}%.`;
}

function drawBars(svg, memory, held, totals) {
  const most = Math.max(...totals, 1), wide = 1000 / memory.calls.length;
  const hues = new Map(memory.storages.map((storage, n) => [storage, storage.nodes.length && now.hueOf(storage.nodes[0]) !== undefined ? now.hueOf(storage.nodes[0]) : (n * 47) % 360]));
  const order = new Map(memory.storages.map((storage, n) => [storage, n]));
  held.forEach((list, call) => {
    const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const set = (rect, values) => { for (const [key, value] of Object.entries(values)) rect.setAttribute(key, value); return rect; };
    svg.append(set(back, { class: "call", x: call * wide, y: 0, width: wide, height: 300, "data-call": call }));
    let top = 300;
    for (const storage of [...list].sort((a, b) => order.get(a) - order.get(b))) {
      const height = (285 * (storage.bytes || 0)) / most;
      if (height < 0.2) continue;
      top -= height;
      const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      set(rect, { class: "hold", x: call * wide + wide * 0.04, y: top, width: wide * 0.92, height, style: `--h:${hues.get(storage)}` });
      rect.innerHTML = `<title>${escapeText(`${storage.names.join(" = ")}: ${bytesText(storage.bytes || 0)}\ncall ${call + 1}: ${memory.calls[call]}`)}</title>`;
      svg.append(rect);
      addLight("memory", rect, storage.nodes, { what: storage.names[0] });
    }
  });
  svg.addEventListener("click", (event) => {
    const place = svg.getBoundingClientRect(), pad = 12;
    const at = Math.floor(((event.clientX - place.left - pad) / (place.width - 2 * pad)) * memory.calls.length);
    if (at >= 0 && at < memory.calls.length) { callShown = at; showHolders(memory, held, totals); }
  });
}

/** The table below the bars: who holds how much at the call that is shown. */
function showHolders(memory, held, totals) {
  const at = callShown, list = held[at];
  document.querySelectorAll(".memory rect.call").forEach((rect, n) => rect.classList.toggle("now", n === at));
  const holders = document.querySelector(".memory .holders");
  for (const row of holders.querySelectorAll("tr")) {
    if (row.light) lights.get("memory").splice(lights.get("memory").indexOf(row.light), 1);
    row.light = undefined;
  }
  const rows = list.map((storage) => {
    const from = storage.nodes.map((n) => now.nodes[n]);
    const place = from.find((node) => node.at);
    return `<tr data-n=""><td><code>${escapeText(storage.names.join(" = "))}</code></td><td class="amount">${bytesText(storage.bytes || 0)}</td>`
      + `<td class="amount">${Math.round((100 * (storage.bytes || 0)) / Math.max(1, totals[at]))}%</td><td>${storage.birth}–${storage.death === null ? "end" : storage.death}</td>`
      + `<td>${escapeText([...new Set(from.map((node) => shortOp(node.op)))].slice(0, 4).join(", "))}${place ? ` <code>${escapeText(placeText(place.at))}</code>` : ""}</td></tr>`;
  });
  holders.innerHTML = `<table><thead><tr><th>at call ${at + 1}, <code>${escapeText(memory.calls[at])}</code></th><th class="amount">${bytesText(totals[at])}</th><th class="amount"></th><th>calls</th><th>made by</th></tr></thead><tbody>${rows.join("")}</tbody></table>`;
  [...holders.querySelectorAll("tbody tr")].forEach((row, n) => addLight("memory", row, list[n].nodes, { what: list[n].names[0] }));
}
