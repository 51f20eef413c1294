// Is it safe, and what does it earn?
import { html } from "./html.js";
import { Bar, Empty, Link, Panel, Wide, useNow } from "./parts.js";
import { useTables } from "./store.js";
import { Earnings } from "./earnings.js";
import { bytes, className, cores, counted, percent } from "./words.js";

const STALE_MS = 5 * 60 * 1000;
/** The defaults of usageThresholds of LoadAwareScheduling. */
const HIGH_CPU = 0.65;
const HIGH_MEMORY = 0.95;
const HOUR_MS = 60 * 60 * 1000;
const EVICTIONS = new Set(["evicted", "preempted"]);

export function Overview() {
  return html`<${Safety} /><${Classes} /><${Earnings} />`;
}

/** @typedef {{ text: any, to: string, verdict: import("./parts.js").Verdict }} Finding */

function Safety() {
  const [nodes, interference, audit] = useTables("nodes", "interference", "audit");
  const now = useNow(10);
  const known = [...nodes.rows.values()];
  /** @type {Finding[]} */
  const findings = [];
  const victims = new Set([...interference.rows.values()].map((row) => row.pod));
  if (victims.size) {
    findings.push({ text: `${counted(victims.size, "pod suffers", "pods suffer")} from others on their nodes`, to: "interference", verdict: "bad" });
  }
  const pressed = known.filter((row) => row.pressures.length);
  if (pressed.length) {
    findings.push({ text: `${counted(pressed.length, "node is", "nodes are")} under pressure: ${some(pressed)}`, to: "nodes", verdict: "bad" });
  }
  const adapted = known.filter((row) => row.adapted);
  if (adapted.length) {
    findings.push({
      text: `The co-location of ${counted(adapted.length, "node")} is taken back, because its online pods suffer: ${some(adapted)} (${adapted[0].name}: step ${adapted[0].adapted.level} of ${adapted[0].adapted.steps}, ${adapted[0].adapted.reason})`,
      to: `explain/node/${encodeURIComponent(adapted[0].name)}`,
      verdict: "warn",
    });
  }
  const loaded = known.filter((row) => row.measured && (row.measured.cpu > HIGH_CPU * row.allocatable.cpu || row.measured.memory > HIGH_MEMORY * row.allocatable.memory));
  if (loaded.length) {
    findings.push({ text: `${counted(loaded.length, "node uses", "nodes use")} more than 65 % of the CPUs or 95 % of the memory, above which the scheduler by default places no pod by load: ${some(loaded)}`, to: "nodes", verdict: "warn" });
  }
  const unready = known.filter((row) => row.state !== "ready");
  if (unready.length) {
    findings.push({ text: `${counted(unready.length, "node is", "nodes are")} not ready for pods: ${some(unready)}`, to: "nodes", verdict: "warn" });
  }
  const stale = known.filter((row) => row.reported && now - Date.parse(row.reported) > STALE_MS);
  if (stale.length) {
    findings.push({ text: `${counted(stale.length, "node has", "nodes have")} not reported for five minutes: ${some(stale)}`, to: "nodes", verdict: "warn" });
  }
  const evicted = [...audit.rows.values()].filter(
    (row) => EVICTIONS.has(row.action) && now - Date.parse(row.at) < HOUR_MS,
  );
  if (evicted.length) {
    findings.push({ text: `${counted(evicted.length, "eviction")} in the last hour`, to: "moves", verdict: "warn" });
  }
  // It is how batch pods pay for the safety of others: worth knowing, and nothing that is unsafe.
  const held = known.reduce((sum, row) => sum + (row.classes["koord-batch"]?.suppressed ?? 0), 0);
  const isKnown = known.length > 0 && !nodes.problem && !nodes.lacks;
  const verdict = !isKnown ? "unknown" : findings.some((each) => each.verdict === "bad") ? "bad" : findings.length ? "warn" : "good";
  const conclusion = !isKnown
    ? "Nothing is known of the nodes, so nothing can be said."
    : findings.length
      ? "Something touches pods that must not be hurt, or may do so soon:"
      : `No pod is known to suffer from another, and no node is under pressure: ${counted(known.length, "node")}.`;
  const throttled = held
    ? html`<${Link} to="nodes?show=suppressed">Batch pods are held ${cores(held)} below their requests<//>, so that online pods have theirs.`
    : "No batch pod is known to be held below its requests.";
  return html`<${Panel} title="Is it safe?" verdict=${verdict} conclusion=${conclusion} sources=${[nodes, interference, audit]} command="koord audit --since 1h">
    <ul class="findings">
      ${findings.map(({ text, to, verdict }) => html`<li class=${verdict}><${Link} to=${to}>${text}<//></li>`)}
    </ul>
    ${isKnown && html`<p class="conclusion">${throttled}</p>`}
  <//>`;
}

/** @param {{ name: string }[]} rows */
function some(rows) {
  const names = rows.map((row) => row.name).sort();
  return names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

function Classes() {
  const [classes, nodes] = useTables("classes", "nodes");
  const rows = [...classes.rows.values()];
  let cpu = 0;
  let used = 0;
  for (const node of nodes.rows.values()) {
    cpu += node.allocatable.cpu;
    used += node.measured?.cpu ?? 0;
  }
  const batch = classes.rows.get("koord-batch");
  const conclusion = batch?.reclaimable.cpu
    ? `${percent(used, cpu)} of ${cores(cpu)} are used. Batch pods use ${cores(batch.measured.cpu)} of the ${cores(batch.reclaimable.cpu)} that they may have beside the others.`
    : `${percent(used, cpu)} of ${cores(cpu)} are used. No node offers anything to batch pods: koord-manager does, where its ConfigMap switches colocation on.`;
  return html`<${Panel} title="Who has what" conclusion=${conclusion} sources=${[classes]} command="koord top">
    ${rows.length
      ? html`<${Wide} label="Classes"><table class="classes">
          <thead><tr>
            <th scope="col">class</th><th scope="col" class="number">pods</th>
            <th scope="col">CPU</th><th scope="col" class="number">requested</th><th scope="col" class="number">used</th><th scope="col" class="number">could have</th>
            <th scope="col">memory</th><th scope="col" class="number">requested</th><th scope="col" class="number">used</th><th scope="col" class="number">could have</th>
            <th scope="col" class="number">held down by</th>
          </tr></thead>
          <tbody>${rows.map((row) => html`<tr key=${row.name}>
            <th scope="row">${className(row.name)}</th><td class="number">${row.pods.toLocaleString("en")}</td>
            ${resourceCells(row, "cpu", cores)}${resourceCells(row, "memory", bytes)}
            <td class="number">${row.suppressed ? cores(row.suppressed) : ""}</td>
          </tr>`)}</tbody>
        </table><//>`
      : html`<${Empty}>No pods are on nodes yet.<//>`}
  <//>`;
}

/** @param {any} row @param {"cpu" | "memory"} resource @param {(amount: number) => string} words */
function resourceCells(row, resource, words) {
  const [allocated, measured, reclaimable] = [row.allocated[resource], row.measured[resource], row.reclaimable[resource]];
  const text = `requested ${words(allocated)}, used ${words(measured)}`;
  const parts = [
    { name: "requested", value: allocated, kind: "allocated" },
    { name: "used", value: measured, kind: "measured" },
  ];
  return html`<td><${Bar} whole=${Math.max(allocated, reclaimable, measured)} parts=${parts} text=${text} /></td>
    <td class="number">${words(allocated)}</td><td class="number">${words(measured)}</td>
    <td class="number">${reclaimable ? words(reclaimable) : ""}</td>`;
}
