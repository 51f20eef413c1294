// Quotas as a tree, gangs, and Reservations.
import { html, useMemo } from "./html.js";
import { Bar, Empty, Link, Panel, Rows, Wide, useNow } from "./parts.js";
import { useTables } from "./store.js";
import { age, amount, counted, resourceName } from "./words.js";

export function Tenants() {
  return html`<${Quotas} /><${Gangs} /><${Reservations} />`;
}

/** @typedef {{ row: any, depth: number }} Branch */

/**
 * Parents before their children; a quota whose parent is not here stands at the root.
 * @param {Map<string, any>} rows
 * @returns {Branch[]}
 */
export function treeOf(rows) {
  const all = [...rows.values()].sort((a, b) => a.name.localeCompare(b.name));
  const names = new Set(all.map((row) => row.name));
  /** @type {Branch[]} */
  const found = [];
  const seen = new Set();
  /** @param {string} parent @param {number} depth */
  const add = (parent, depth) => {
    for (const row of all) {
      const its = names.has(row.parent) && row.parent !== row.name ? row.parent : "";
      if (its === parent && !seen.has(row.name)) {
        seen.add(row.name);
        found.push({ row, depth });
        add(row.name, depth + 1);
      }
    }
  };
  add("", 0);
  // Quotas that are each other's parents belong to no root; they are shown all the same.
  for (const row of all) if (!seen.has(row.name)) found.push({ row, depth: 0 });
  return found;
}

function Quotas() {
  const [quotas] = useTables("quotas");
  const tree = useMemo(() => treeOf(quotas.rows), [quotas.version]);
  const borrowing = tree.filter(({ row }) => !BUILT_IN.has(row.name) && Object.keys(borrowed(row)).length);
  const conclusion = !tree.length
    ? "No quotas are defined: pods take what they find."
    : borrowing.length
      ? `${counted(borrowing.length, "quota uses", "quotas use")} more than is guaranteed, of what others leave: ${borrowing.map(({ row }) => row.name).join(", ")}.`
      : "No quota uses more than it is guaranteed.";
  const resources = [...new Set(tree.flatMap(({ row }) => Object.keys(row.amounts.max).concat(Object.keys(row.amounts.min))))].sort();
  return html`<${Panel} title="Quotas" conclusion=${conclusion} sources=${[quotas]} command="koord get quotas">
    ${tree.length
      ? html`<${Wide} label="Quotas as a tree"><table class="quotas">
          <thead><tr><th scope="col">quota</th>${resources.map((name) => html`<th scope="col">${resourceName(name)}</th>`)}</tr></thead>
          <tbody>${tree.map(({ row, depth }) => html`<tr key=${row.name}>
            <th scope="row" style=${{ paddingLeft: `${0.6 + 1.2 * depth}rem` }}><${Link} to=${`explain/quota/${encodeURIComponent(row.name)}`}>${row.name}<//></th>
            ${resources.map((name) => html`<td><${QuotaBar} row=${row} resource=${name} /></td>`)}
          </tr>`)}</tbody>
        </table><//>`
      : html`<${Empty}>An ElasticQuota guarantees a team its share and lends the rest.<//>`}
  <//>`;
}

/** Those that are always there: they guarantee nothing and limit nothing. */
const BUILT_IN = new Set(["koordinator-root-quota", "koordinator-default-quota", "koordinator-system-quota"]);
/** Nobody has so much of anything: a limit that is as high is none. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER;

/** What a quota uses above its guarantee. @param {any} row */
function borrowed(row) {
  /** @type {Record<string, number>} */
  const found = {};
  for (const [name, used] of Object.entries(row.amounts.used)) {
    if (used > (row.amounts.min[name] ?? 0)) found[name] = used - (row.amounts.min[name] ?? 0);
  }
  return found;
}

/** @param {{ row: any, resource: string }} properties */
function QuotaBar({ row, resource }) {
  const { min, max, used, runtime } = row.amounts;
  if (!(resource in max) && !(resource in min) && !(resource in used)) return "";
  const words = (/** @type {number | undefined} */ value) => (value === undefined || value >= NO_LIMIT ? "no limit" : amount(resource, value));
  const text = `used ${words(used[resource] ?? 0)} of ${words(runtime[resource] ?? max[resource])}; guaranteed ${words(min[resource] ?? 0)}, at most ${words(max[resource])}`;
  const parts = [
    { name: "may use", value: runtime[resource] ?? 0, kind: "reclaimable" },
    { name: "guaranteed", value: min[resource] ?? 0, kind: "allocated" },
    { name: "used", value: used[resource] ?? 0, kind: "measured" },
  ];
  return html`<${Bar} whole=${max[resource] < NO_LIMIT ? max[resource] : 0} parts=${parts} text=${text} /><small>${text}</small>`;
}

function Gangs() {
  const [gangs] = useTables("gangs");
  const now = useNow(5);
  const rows = useMemo(() => [...gangs.rows.values()].sort((a, b) => a.name.localeCompare(b.name)), [gangs.version]);
  const waiting = rows.filter((row) => row.bound < row.needs);
  const conclusion = !rows.length
    ? "There are no gangs."
    : waiting.length
      ? `${counted(waiting.length, "gang has", "gangs have")} not all the pods on nodes that it needs.`
      : `All of ${counted(rows.length, "gang")} have the pods on nodes that they need.`;
  return html`<${Panel} title="Gangs" conclusion=${conclusion} sources=${[gangs]} command="koord get gangs">
    ${rows.length > 0 && html`<${Rows} label="Gangs" rows=${rows} keyOf=${(/** @type {any} */ row) => row.name} height=${320} columns=${[
      { title: "gang", cell: (/** @type {any} */ row) => html`<${Link} to=${`explain/gang/${row.name.split("/").map(encodeURIComponent).join("/")}`}>${row.name}<//>` },
      { title: "on nodes", cell: (/** @type {any} */ row) => html`<${Bar} whole=${row.needs} parts=${[{ name: "bound", value: row.bound, kind: "measured" }]} text=${`${row.bound} of ${row.needs} pods are on nodes`} />`, width: "8rem" },
      { title: "bound", isNumber: true, cell: (/** @type {any} */ row) => row.bound },
      { title: "needs", isNumber: true, cell: (/** @type {any} */ row) => row.needs },
      { title: "waiting", isNumber: true, cell: (/** @type {any} */ row) => row.waiting },
      { title: "pending", isNumber: true, cell: (/** @type {any} */ row) => row.pending },
      { title: "age", isNumber: true, cell: (/** @type {any} */ row) => age(row.created, now) },
    ]} />`}
  <//>`;
}

function Reservations() {
  const [reservations] = useTables("reservations");
  const now = useNow(5);
  const rows = useMemo(() => [...reservations.rows.values()].sort((a, b) => a.name.localeCompare(b.name)), [reservations.version]);
  const available = rows.filter((row) => row.phase === "Available").length;
  const conclusion = rows.length ? `${counted(rows.length, "Reservation")}, ${available} of them with room for owners.` : "Nothing is reserved.";
  return html`<${Panel} title="Reservations" conclusion=${conclusion} sources=${[reservations]} command="koord get reservations">
    ${rows.length > 0 && html`<${Rows} label="Reservations" rows=${rows} keyOf=${(/** @type {any} */ row) => row.name} height=${320} columns=${[
      { title: "reservation", cell: (/** @type {any} */ row) => html`<${Link} to=${`explain/reservation/${encodeURIComponent(row.name)}`}>${row.name}<//>` },
      { title: "phase", cell: (/** @type {any} */ row) => row.phase },
      { title: "node", cell: (/** @type {any} */ row) => row.node },
      { title: "keeps", cell: (/** @type {any} */ row) => row.allocatable },
      { title: "given to owners", cell: (/** @type {any} */ row) => row.allocated },
      { title: "age", isNumber: true, cell: (/** @type {any} */ row) => age(row.created, now) },
    ]} />`}
  <//>`;
}
