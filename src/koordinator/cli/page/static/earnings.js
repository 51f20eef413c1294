// What co-location earns, over time.
import uPlot from "uplot";
import { html, useEffect, useRef, useState } from "./html.js";
import { Empty, Panel } from "./parts.js";
import { ask } from "./store.js";
import { cores } from "./words.js";

const AGAIN_MS = 10000;
const SPANS = { "1h": "the last hour", "24h": "the last day", "168h": "the last week" };
/** @type {[string, string, string][]} series of the server, title, colour */
const LINES = [
  ["online_allocated", "given out to online pods", "--line-allocated"],
  ["online_measured", "used by online pods", "--line-online"],
  ["batch_measured", "used by batch pods", "--line-batch"],
  ["batch_reclaimable", "offered to batch pods", "--line-reclaimable"],
];

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
  const [span, setSpan] = useState("1h");
  const [history, setHistory] = useState(/** @type {History | null} */ (null));
  const [problem, setProblem] = useState("");
  const [price, setPrice] = useState(localStorage.getItem("price") ?? "");
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      try {
        setHistory(await ask(`api/history?span=${span}`, abort.signal));
        setProblem("");
      } catch (error) {
        if (!abort.signal.aborted) setProblem(String(error instanceof Error ? error.message : error));
      }
    };
    read();
    const timer = setInterval(read, AGAIN_MS);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [span]);
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
    ${history && history.times.length > 1 ? html`<${Chart} history=${history} />` : html`<${Empty}>The first minutes are still to come: the page keeps what it sees from now on.<//>`}
  <//>`;
}

/** @param {{ history: History }} properties */
function Chart({ history }) {
  const box = /** @type {{ current: HTMLDivElement | null }} */ (useRef(null));
  const plot = /** @type {{ current: uPlot | null }} */ (useRef(null));
  const data = /** @type {uPlot.AlignedData} */ ([history.times, ...LINES.map(([name]) => history.series[name] ?? history.times.map(() => null))]);
  useEffect(() => {
    if (!box.current) return;
    const style = getComputedStyle(box.current);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const axis = { stroke: style.color, grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    plot.current = new uPlot(
      {
        width: box.current.clientWidth,
        height: 240,
        series: [
          {},
          ...LINES.map(([, label, name]) => ({
            label,
            stroke: colour(name),
            width: 2,
            value: (/** @type {uPlot} */ _, /** @type {number | null} */ value) => (value === null ? "–" : cores(value)),
          })),
        ],
        axes: [axis, { ...axis, size: 80, values: (/** @type {uPlot} */ _, /** @type {number[]} */ values) => values.map((value) => cores(value)) }],
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
  return html`<div class="chart" ref=${box} role="img" aria-label=${summary(history)}></div>`;
}

/** What the chart shows, for those who do not see it. @param {History} history */
function summary(history) {
  return LINES.map(([name, label]) => {
    const values = (history.series[name] ?? []).filter((value) => value !== null);
    return `${label}: now ${cores(/** @type {number} */ (values.at(-1) ?? 0))}`;
  }).join("; ");
}
