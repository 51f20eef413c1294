// All nodes at a glance, and each by itself.
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { Bar, NodeLink, Panel, Rows, useNow, useScheme } from "./parts.js";
import { useChoice } from "./route.js";
import { useRowsByName, useTables } from "./store.js";
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
  const [chosen, setMeasure] = useChoice("show", "cpu");
  const measure = /** @type {Measure} */ (Object.hasOwn(MEASURES, chosen) ? chosen : "cpu");
  const [filter, setFilter] = useChoice("name", "");
  const now = useNow(10);
  const all = useRowsByName(nodes);
  const rows = useMemo(() => (filter ? all.filter((row) => row.name.includes(filter)) : all), [all, filter]);
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

const GAP = 2;

/** The size of a square, in pixels: a few nodes need not be looked for. @param {number} nodes */
function cellOf(nodes) {
  return nodes > 400 ? 14 : nodes > 60 ? 20 : 32;
}

/**
 * A square for each node. One drawing, however many nodes there are; arrow keys walk through it.
 * @param {{ rows: any[], measure: { title: string, value: (row: any) => number | null, text: (row: any) => string } }} properties
 */
function HeatMap({ rows, measure }) {
  const canvas = /** @type {{ current: HTMLCanvasElement | null }} */ (useRef(null));
  const [width, setWidth] = useState(0);
  const [chosen, setChosen] = useState(-1);
  const scheme = useScheme();
  const step = cellOf(rows.length) + GAP;
  const columns = Math.max(1, Math.floor(width / step));
  const height = Math.ceil(rows.length / columns) * step;
  useEffect(() => {
    const parent = canvas.current?.parentElement;
    if (!parent) return;
    const observer = new ResizeObserver(() => setWidth(parent.clientWidth));
    observer.observe(parent);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width) draw(canvas.current, rows, measure, columns, width, height, chosen);
  }, [rows, measure, width, chosen, scheme]);
  /** @param {MouseEvent} event */
  const at = (event) => {
    const index = Math.floor(event.offsetY / step) * columns + Math.floor(event.offsetX / step);
    return index < rows.length ? index : -1;
  };
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (by) {
      event.preventDefault();
      setChosen(Math.min(rows.length - 1, Math.max(0, chosen < 0 ? 0 : chosen + by)));
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
    <p class="legend">${STEPS.map((text, at) => html`<span><svg class=${`heat-${at}`} width="12" height="12" aria-hidden="true"><rect width="12" height="12" /></svg> ${text}</span>`)}</p>
  </div>`;
}

/** What the colours mean. */
const STEPS = ["below 20 %", "20 to 40 %", "40 to 60 %", "60 to 80 %", "80 % and more", "not ready, or not known"];

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
  const colours = [0, 1, 2, 3, 4].map((each) => style.getPropertyValue(`--heat-${each}`).trim());
  const unknown = style.getPropertyValue("--heat-unknown").trim();
  pen.scale(scale, scale);
  const cell = cellOf(rows.length);
  const step = cell + GAP;
  rows.forEach((row, index) => {
    const value = row.state === "ready" ? measure.value(row) : null;
    pen.fillStyle = value === null ? unknown : colours[Math.min(4, Math.max(0, Math.floor(value * 5)))];
    pen.fillRect((index % columns) * step, Math.floor(index / columns) * step, cell, cell);
  });
  if (rows[chosen]) {
    pen.strokeStyle = style.color;
    pen.lineWidth = 2;
    pen.strokeRect((chosen % columns) * step + 1, Math.floor(chosen / columns) * step + 1, cell - 2, cell - 2);
  }
}
