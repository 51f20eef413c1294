// Cards and what pods hold of them, by node.
import { html, useMemo } from "./html.js";
import { Empty, NodeLink, Panel, PodLink } from "./parts.js";
import { useTables } from "./store.js";
import { amount, bytes, counted, resourceName } from "./words.js";

const CORE = "koordinator.sh/gpu-core";
const RATIO = "koordinator.sh/gpu-memory-ratio";

/** How much of a card is given out, from 0 to 1. @param {any} row */
export function shareOf(row) {
  const sums = [CORE, RATIO].map((name) => row.holders.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + (each.resources[name] ?? 0), 0) / (row.resources[name] || 100));
  return row.holders.length ? Math.max(...sums, 0.01) : 0;
}

export function Devices() {
  const [devices] = useTables("devices");
  const nodes = useMemo(() => {
    /** @type {Map<string, any[]>} */
    const found = new Map();
    for (const row of devices.rows.values()) found.set(row.node, [...(found.get(row.node) ?? []), row]);
    for (const rows of found.values()) rows.sort((a, b) => a.type.localeCompare(b.type) || a.minor - b.minor);
    return [...found].sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true }));
  }, [devices.version]);
  const cards = [...devices.rows.values()].filter((row) => row.type === "gpu");
  const whole = cards.filter((row) => row.healthy && !row.holders.length).length;
  const broken = cards.filter((row) => !row.healthy).length;
  const parts = cards.filter((row) => shareOf(row) > 0 && shareOf(row) < 1).length;
  const conclusion = !cards.length
    ? "No GPUs are known: koord-device-daemon finds them on each node."
    : `${whole} of ${counted(cards.length, "GPU")} are free as a whole, ${parts} are shared in part${broken ? `, ${broken} cannot be used` : ""}.`;
  return html`<${Panel} title="Devices" verdict=${broken ? "warn" : undefined} conclusion=${conclusion} sources=${[devices]} command="kubectl get devices">
    ${nodes.map(([node, rows]) => html`<article key=${node} class="finding">
      <h3><${NodeLink} name=${node} /></h3>
      <ul class="cards">${rows.map((row) => html`<li key=${`${row.type} ${row.minor}`} class=${row.healthy ? "" : "broken"}>
        <span class="share" style=${{ "--share": shareOf(row) }}></span>
        <strong>${row.type} ${row.minor}</strong>
        <small>${[row.numa === null ? "" : `NUMA ${row.numa}`, row.pcie, memoryOf(row)].filter(Boolean).join(" · ")}</small>
        ${!row.healthy && html`<small>not healthy ${row.noteworthy.join("; ")}</small>`}
        ${row.holders.map((/** @type {any} */ each) => html`<div key=${each.pod}><${PodLink} name=${each.pod} /> ${heldText(each.resources)}</div>`)}
        ${row.healthy && !row.holders.length && html`<small>free</small>`}
      </li>`)}</ul>
    </article>`)}
    ${!nodes.length && html`<${Empty}>No node has accelerators.<//>`}
  <//>`;
}

/** @param {any} row */
function memoryOf(row) {
  const memory = row.resources["koordinator.sh/gpu-memory"];
  return memory ? bytes(memory) : "";
}

/** @param {Record<string, number>} resources */
function heldText(resources) {
  return Object.entries(resources).map(([name, value]) => `${amount(name, value)} ${resourceName(name)}`).join(", ");
}
