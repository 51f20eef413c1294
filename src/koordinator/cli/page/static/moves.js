// What leaves its node, and why: migrations, drains, and the record of what was done.
import { html, useMemo } from "./html.js";
import { Empty, Link, NodeLink, Panel, PodLink, Rows, useNow } from "./parts.js";
import { useTables } from "./store.js";
import { age, counted, moment } from "./words.js";

const ENDED = new Set(["Succeeded", "Succeed", "Failed", "Aborted"]);

export function Moves() {
  return html`<${Drains} /><${Migrations} /><${Audit} />`;
}

function Drains() {
  const [drains] = useTables("drains");
  const rows = [...drains.rows.values()].sort((a, b) => a.name.localeCompare(b.name));
  const running = rows.filter((row) => row.phase === "Running").length;
  const conclusion = rows.length ? `${counted(rows.length, "drain")}, ${running} of them under way.` : "No node is being emptied.";
  return html`<${Panel} title="Drains" conclusion=${conclusion} sources=${[drains]} command="kubectl get drainnodes">
    ${rows.map((row) => html`<article key=${row.name} class="finding">
      <h3><${NodeLink} name=${row.node} />: ${row.phase}</h3>
      ${row.message && html`<p>${row.message}</p>`}
      <p>${Object.entries(row.pods).map(([phase, count]) => `${count} ${phase}`).join(", ") || "no pods"}</p>
      ${row.noteworthy.length > 0 && html`<ul>${row.noteworthy.map((/** @type {string} */ text) => html`<li>${text}</li>`)}</ul>`}
    </article>`)}
  <//>`;
}

function Migrations() {
  const [migrations] = useTables("migrations");
  const now = useNow(5);
  const rows = useMemo(
    () => [...migrations.rows.values()].sort((a, b) => Number(ENDED.has(a.phase)) - Number(ENDED.has(b.phase)) || b.created.localeCompare(a.created)),
    [migrations.version],
  );
  const open = rows.filter((row) => !ENDED.has(row.phase)).length;
  const conclusion = rows.length ? `${open ? counted(open, "migration is", "migrations are") : "No migration is"} under way; ${counted(rows.length - open, "has", "have")} ended.` : "No pod is on its way to another node.";
  return html`<${Panel} title="Migrations" conclusion=${conclusion} sources=${[migrations]} command="koord get migrations">
    ${rows.length > 0 && html`<${Rows} label="Migrations" rows=${rows} keyOf=${(/** @type {any} */ row) => row.name} height=${320} columns=${[
      { title: "migration", cell: (/** @type {any} */ row) => html`<${Link} to=${`explain/migration/${encodeURIComponent(row.name)}`}>${row.name}<//>` },
      { title: "pod", cell: (/** @type {any} */ row) => html`<${PodLink} name=${row.pod} />` },
      { title: "phase", cell: (/** @type {any} */ row) => row.phase },
      { title: "step", cell: (/** @type {any} */ row) => row.step },
      ...(rows.some((row) => row.reason) ? [{ title: "reason", cell: (/** @type {any} */ row) => row.reason }] : []),
      { title: "age", isNumber: true, cell: (/** @type {any} */ row) => age(row.created, now) },
    ]} />`}
  <//>`;
}

function Audit() {
  const [audit] = useTables("audit");
  const rows = useMemo(() => [...audit.rows.values()].sort((a, b) => b.at.localeCompare(a.at)), [audit.version]);
  const conclusion = rows.length
    ? `What our programs did to pods and nodes, the newest of the last day first: ${counted(rows.length, "record")}.`
    : "Our programs have evicted, moved, resized and suppressed nothing in the last day, as far as is kept.";
  return html`<${Panel} title="What was done" conclusion=${conclusion} sources=${[audit]} command="koord audit --since 24h">
    ${rows.length
      ? html`<${Rows} label="Records" rows=${rows} keyOf=${(/** @type {any} */ row) => `${row.at} ${row.object} ${row.action}`} columns=${[
          { title: "at", cell: (/** @type {any} */ row) => moment(row.at) },
          { title: "program", cell: (/** @type {any} */ row) => row.program },
          { title: "action", cell: (/** @type {any} */ row) => row.action },
          { title: "object", cell: (/** @type {any} */ row) => row.object },
          { title: "node", cell: (/** @type {any} */ row) => row.node && html`<${NodeLink} name=${row.node} />` },
          { title: "why", cell: (/** @type {any} */ row) => html`<span title=${row.why}>${row.why}</span>` },
        ]} />`
      : html`<${Empty}>koord-manager keeps a record of each eviction, migration, resize and suppression.<//>`}
  <//>`;
}
