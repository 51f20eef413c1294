// What co-location earns, over time.
import uPlot from "uplot";
import { html, useEffect, useRef, useState } from "./html.js";
import { Empty, Panel, useScheme } from "./parts.js";
import { useChoice } from "./route.js";
import { useAnswer } from "./store.js";
import { cores } from "./words.js";

const AGAIN_MS = 10000;
const SPANS = { "1h": "the last hour", "24h": "the last day", "168h": "the last week" };
/** The areas from below, each upon the one before, and a line over them. */
const AREAS = [
  { label: "used by online pods", colour: "--line-online", of: (/** @type {Step} */ at) => at("online_measured") },
  { label: "used by batch pods", colour: "--line-batch", of: (/** @type {Step} */ at) => at("batch_measured") },
  {
    label: "offered to batch pods, and not used",
    colour: "--line-reclaimable",
    of: (/** @type {Step} */ at) => less(at("batch_reclaimable"), at("batch_measured")),
  },
];
const LINE = { label: "requested by online pods", colour: "--line-allocated", of: (/** @type {Step} */ at) => at("online_allocated") };

/** @typedef {(series: string) => number | null} Step the values of one step, by the name of the server's series */

/** @param {number | null} whole @param {number | null} part */
function less(whole, part) {
  return whole === null ? null : Math.max(0, whole - (part ?? 0));
}

/**
 * @typedef {object} History
 * @property {number[]} times seconds since 1970
 * @property {Record<string, (number | null)[]>} series milli-CPU, as many as times
 * @property {number} step seconds
 */

/** Core-hours that batch pods have used in that time. @param {History} history */
export function coreHours(history) {
  const used = history.series.batch_measured ?? [];
  return used.reduce((/** @type {number} */ sum, value) => sum + ((value ?? 0) / 1000) * (history.step / 3600), 0);
}

export function Earnings() {
  const [chosen, setSpan] = useChoice("span", "1h");
  const span = Object.hasOwn(SPANS, chosen) ? chosen : "1h";
  const answer = useAnswer(`api/history?span=${span}`, AGAIN_MS);
  /** @type {History | null} */
  const history = answer.found;
  const { problem } = answer;
  const [price, setPrice] = useState(localStorage.getItem("price") ?? "");
  const scheme = useScheme();
  const hours = history ? coreHours(history) : 0;
  const worth = Number(price) > 0 ? `, worth ${(hours * Number(price)).toLocaleString([], { maximumFractionDigits: 2 })} at ${price} a core-hour` : "";
  const conclusion = history
    ? `Batch pods have used ${hours.toLocaleString("en", { maximumFractionDigits: hours < 10 ? 2 : 0 })} core-hours of what others left in ${SPANS[/** @type {keyof typeof SPANS} */ (span)]}${worth}.`
    : "";
  return html`<${Panel} title="What did it earn?" conclusion=${problem || conclusion} command="koord top">
    <div class="controls">
      <label>Time <select value=${span} onChange=${(/** @type {any} */ event) => setSpan(event.target.value)}>
        ${Object.entries(SPANS).map(([key, title]) => html`<option value=${key}>${title}</option>`)}
      </select></label>
      <label>Price of a core-hour <input type="number" min="0" step="any" value=${price} onInput=${(/** @type {any} */ event) => {
        setPrice(event.target.value);
        localStorage.setItem("price", event.target.value);
      }} /></label>
    </div>
    ${history && history.times.length > 1 ? html`<${Chart} key=${scheme} history=${history} /><p class="conclusion">${summary(history)}</p>` : html`<${Empty}>The first minutes are still to come: the page keeps what it sees from now on.<//>`}
  <//>`;
}

/** What each area and the line amount to, for each step. @param {History} history @returns {(number | null)[][]} */
function amountsOf(history) {
  const at = (/** @type {number} */ step) => (/** @type {string} */ name) => history.series[name]?.[step] ?? null;
  return [...AREAS, LINE].map(({ of }) => history.times.map((_, step) => of(at(step))));
}

/** The data of the plot: what is painted over comes first, so that the highest sum does. @param {(number | null)[][]} amounts */
function stacked(amounts) {
  const [line, ...areas] = [...amounts].reverse();
  const sums = areas.map((_, from) => areas[from].map((value, step) => (value === null ? null : areas.slice(from).reduce((sum, each) => sum + (each[step] ?? 0), 0))));
  return [...sums, line];
}

/** @param {{ history: History }} properties */
function Chart({ history }) {
  const box = /** @type {{ current: HTMLDivElement | null }} */ (useRef(null));
  const plot = /** @type {{ current: uPlot | null }} */ (useRef(null));
  const amounts = amountsOf(history);
  const shown = /** @type {{ current: (number | null)[][] }} */ (useRef(amounts));
  shown.current = amounts;
  const data = /** @type {uPlot.AlignedData} */ ([history.times, ...stacked(amounts)]);
  useEffect(() => {
    if (!box.current) return;
    const style = getComputedStyle(box.current);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const axis = { stroke: style.color, grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const values = (/** @type {number} */ series) => (/** @type {uPlot} */ _, /** @type {number | null} */ __, /** @type {number} */ ___, /** @type {number | null} */ step) => {
      const value = step === null ? null : shown.current[series][step];
      return value === null ? "–" : cores(value);
    };
    const areas = AREAS.map(({ label, colour: name }, at) => ({ label, stroke: colour(name), fill: colour(name), width: 1, points: { show: false }, value: values(at) }));
    plot.current = new uPlot(
      {
        width: box.current.clientWidth,
        height: 240,
        series: [
          {},
          ...areas.reverse(),
          { label: LINE.label, stroke: colour(LINE.colour), width: 2, dash: [6, 4], points: { show: false }, value: values(AREAS.length) },
        ],
        axes: [axis, { ...axis, size: 80, values: (/** @type {uPlot} */ _, /** @type {number[]} */ ticks) => ticks.map((value) => cores(value)) }],
        scales: { y: { range: (_, __, most) => [0, Math.max(most, 1000) * 1.05] } },
      },
      data,
      box.current,
    );
    const observer = new ResizeObserver(() => box.current && plot.current?.setSize({ width: box.current.clientWidth, height: 240 }));
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => {
    plot.current?.setData(data);
  }, [history]);
  return html`<div class="chart" ref=${box} role="group" aria-label="CPUs over time"></div>`;
}

/** What the chart comes to at its end, in words. @param {History} history */
function summary(history) {
  const last = history.times.length - 1;
  const [online, batch, idle, requested] = amountsOf(history).map((values) => values[last] ?? 0);
  return `Last: online pods use ${cores(online)} of the ${cores(requested)} that they request; batch pods use ${cores(batch)}, and ${cores(idle)} more are offered to them.`;
}
