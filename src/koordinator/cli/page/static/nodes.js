// All nodes at a glance, and each by itself.
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { Bar, Empty, NodeLink, Panel, Rows, useNow } from "./parts.js";
import { useTables } from "./store.js";
import { age, bytes, className, cores, counted, percent } from "./words.js";

/** @typedef {"cpu" | "memory" | "suppressed" | "batch"} Measure */

/** @type {Record<Measure, { title: string, value: (row: any) => number | null, text: (row: any) => string }>} */
const MEASURES = {
  cpu: {
    title: "CPU in use",
    value: (row) => (row.measured ? row.measured.cpu / row.allocatable.cpu : null),
    text: (row) => (row.measured ? `${percent(row.measured.cpu, row.allocatable.cpu)} of ${cores(row.allocatable.cpu)} in use` : "not reported"),
  },
  memory: {
    title: "Memory in use",
    value: (row) => (row.measured ? row.measured.memory / row.allocatable.memory : null),
    text: (row) => (row.measured ? `${percent(row.measured.memory, row.allocatable.memory)} of ${bytes(row.allocatable.memory)} in use` : "not reported"),
  },
  batch: {
    title: "Batch CPU given out",
    value: (row) => share(row.classes["koord-batch"], "allocated", "reclaimable"),
    text: (row) => {
      const batch = row.classes["koord-batch"];
      return batch ? `${cores(batch.allocated.cpu)} of ${cores(batch.reclaimable.cpu)} batch CPU given out` : "offers no batch CPU";
    },
  },
  suppressed: {
    title: "Batch held down",
    value: (row) => {
      const batch = row.classes["koord-batch"];
      return batch && batch.allocated.cpu ? batch.suppressed / batch.allocated.cpu : 0;
    },
    text: (row) => `batch pods lack ${cores(row.classes["koord-batch"]?.suppressed ?? 0)} of what they request`,
  },
};

/** @param {any} usage @param {string} part @param {string} whole */
function share(usage, part, whole) {
  return usage && usage[whole].cpu ? usage[part].cpu / usage[whole].cpu : null;
}

export function Nodes() {
  const [nodes] = useTables("nodes");
  const [measure, setMeasure] = useState(/** @type {Measure} */ ("cpu"));
  const [filter, setFilter] = useState("");
  const now = useNow(10);
  const rows = useMemo(
    () => [...nodes.rows.values()].filter((row) => row.name.includes(filter)).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true })),
    [nodes.version, filter],
  );
  const hot = rows.filter((row) => (MEASURES[measure].value(row) ?? 0) > 0.8).length;
  const conclusion = rows.length
    ? `${counted(rows.length, "node")}; on ${hot.toLocaleString("en")} of them, “${MEASURES[measure].title}” is above 80 %.`
    : "There are no nodes here.";
  return html`<${Panel} title="Nodes" conclusion=${conclusion} sources=${[nodes]} command="koord top nodes">
    <div class="controls">
      <label>Show <select value=${measure} onChange=${(/** @type {any} */ event) => setMeasure(event.target.value)}>
        ${Object.entries(MEASURES).map(([key, { title }]) => html`<option value=${key}>${title}</option>`)}
      </select></label>
      <label>Name <input type="search" value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} /></label>
    </div>
    ${rows.length > 0 && html`<${HeatMap} rows=${rows} measure=${MEASURES[measure]} />`}
    <${Rows} label="Nodes" rows=${rows} keyOf=${(/** @type {any} */ row) => row.name} columns=${[
      { title: "node", cell: (/** @type {any} */ row) => html`<${NodeLink} name=${row.name} />` },
      { title: "state", cell: (/** @type {any} */ row) => [row.state, ...row.pressures].join(", ") },
      { title: "CPU", cell: (/** @type {any} */ row) => html`<${UsageBar} row=${row} resource="cpu" words=${cores} />`, width: "8rem" },
      { title: "used", isNumber: true, cell: (/** @type {any} */ row) => (row.measured ? percent(row.measured.cpu, row.allocatable.cpu) : "–") },
      { title: "memory", cell: (/** @type {any} */ row) => html`<${UsageBar} row=${row} resource="memory" words=${bytes} />`, width: "8rem" },
      { title: "used", isNumber: true, cell: (/** @type {any} */ row) => (row.measured ? percent(row.measured.memory, row.allocatable.memory) : "–") },
      { title: "batch offered", isNumber: true, cell: (/** @type {any} */ row) => cores(row.classes["koord-batch"]?.reclaimable.cpu ?? 0) },
      { title: "pods", isNumber: true, cell: (/** @type {any} */ row) => podsOf(row) },
      { title: "reported", isNumber: true, cell: (/** @type {any} */ row) => (row.reported ? `${age(row.reported, now)} ago` : "never") },
    ]} />
  <//>`;
}

/** @param {any} row */
function podsOf(row) {
  return Object.values(row.classes).reduce((sum, usage) => sum + usage.pods, 0);
}

/** @param {{ row: any, resource: "cpu" | "memory", words: (amount: number) => string }} properties */
function UsageBar({ row, resource, words }) {
  const used = Object.values(row.classes).map((usage) => `${className(usage.name)} ${words(usage.measured[resource])}`);
  const parts = row.measured ? [{ name: "used", value: row.measured[resource], kind: "measured" }] : [];
  return html`<${Bar} whole=${row.allocatable[resource]} parts=${parts} text=${used.join(", ") || "no pods"} />`;
}

const CELL = 14;
const GAP = 2;

/**
 * A square for each node. One drawing, however many nodes there are; arrow keys walk through it.
 * @param {{ rows: any[], measure: { title: string, value: (row: any) => number | null, text: (row: any) => string } }} properties
 */
function HeatMap({ rows, measure }) {
  const canvas = /** @type {{ current: HTMLCanvasElement | null }} */ (useRef(null));
  const [width, setWidth] = useState(0);
  const [chosen, setChosen] = useState(-1);
  const columns = Math.max(1, Math.floor(width / (CELL + GAP)));
  const height = Math.ceil(rows.length / columns) * (CELL + GAP);
  useEffect(() => {
    const parent = canvas.current?.parentElement;
    if (!parent) return;
    const observer = new ResizeObserver(() => setWidth(parent.clientWidth));
    observer.observe(parent);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width) draw(canvas.current, rows, measure, columns, width, height, chosen);
  });
  /** @param {MouseEvent} event */
  const at = (event) => {
    const index = Math.floor(event.offsetY / (CELL + GAP)) * columns + Math.floor(event.offsetX / (CELL + GAP));
    return index < rows.length ? index : -1;
  };
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (step) {
      event.preventDefault();
      setChosen(Math.min(rows.length - 1, Math.max(0, chosen < 0 ? 0 : chosen + step)));
    } else if (event.key === "Enter" && rows[chosen]) {
      open(rows[chosen]);
    }
  };
  const row = rows[chosen];
  return html`<div class="heat">
    <canvas ref=${canvas} tabindex="0" role="application" aria-label=${`${measure.title} by node: arrow keys choose a node, Enter opens it`}
      aria-describedby="heat-chosen" onMouseMove=${(/** @type {MouseEvent} */ event) => setChosen(at(event))}
      onMouseLeave=${() => setChosen(-1)} onKeyDown=${onKey}
      onClick=${(/** @type {MouseEvent} */ event) => at(event) >= 0 && open(rows[at(event)])}></canvas>
    <p id="heat-chosen" class="chosen" role="status">${row ? `${row.name}: ${measure.text(row)}` : "Point at a node, or walk with the arrow keys."}</p>
  </div>`;
}

/** @param {any} row */
function open(row) {
  location.hash = `#/explain/node/${encodeURIComponent(row.name)}`;
}

/**
 * @param {HTMLCanvasElement} canvas @param {any[]} rows @param {{ value: (row: any) => number | null }} measure
 * @param {number} columns @param {number} width @param {number} height @param {number} chosen
 */
function draw(canvas, rows, measure, columns, width, height, chosen) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const style = getComputedStyle(canvas);
  const colours = [0, 1, 2, 3, 4].map((step) => style.getPropertyValue(`--heat-${step}`).trim());
  const unknown = style.getPropertyValue("--heat-unknown").trim();
  pen.scale(scale, scale);
  rows.forEach((row, index) => {
    const value = row.state === "ready" ? measure.value(row) : null;
    pen.fillStyle = value === null ? unknown : colours[Math.min(4, Math.floor(value * 5))];
    pen.fillRect((index % columns) * (CELL + GAP), Math.floor(index / columns) * (CELL + GAP), CELL, CELL);
  });
  if (rows[chosen]) {
    pen.strokeStyle = style.color;
    pen.lineWidth = 2;
    pen.strokeRect((chosen % columns) * (CELL + GAP), Math.floor(chosen / columns) * (CELL + GAP), CELL, CELL);
  }
}
