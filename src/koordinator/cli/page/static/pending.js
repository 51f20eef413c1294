// The pods that wait for a node, grouped by what they wait for.
import { html, useMemo } from "./html.js";
import { Empty, Panel, PodLink, Rows, Wide, useNow } from "./parts.js";
import { useChoice } from "./route.js";
import { useTables } from "./store.js";
import { age, bytes, className, cores, counted } from "./words.js";

/**
 * Reasons that differ in numbers and names alone are one: "0/8 nodes are available: 8 Insufficient cpu."
 * @param {any} row
 */
export function reasonOf(row) {
  const known = REASONS.get(row) ?? bare(row);
  REASONS.set(row, known);
  return known;
}

/** Of rows that have not changed since, however many they are. @type {WeakMap<object, string>} */
const REASONS = new WeakMap();

/** @param {any} row */
function bare(row) {
  if (row.why.startsWith("not tried yet")) return "not tried yet";
  const found = row.why.replace(/^\d+\/\d+ nodes are available: /, "").replace(/\.$/, "");
  return found.replace(/\b\d+ (?=[A-Za-z])/g, "");
}

export function Pending() {
  const [pending] = useTables("pending");
  const now = useNow(5);
  const [chosen, setChosen] = useChoice("reason", "");
  const groups = useMemo(() => {
    /** @type {Map<string, any[]>} */
    const found = new Map();
    for (const row of pending.rows.values()) {
      const reason = reasonOf(row);
      const group = found.get(reason);
      if (group) group.push(row);
      else found.set(reason, [row]);
    }
    return [...found].sort((a, b) => b[1].length - a[1].length);
  }, [pending.version]);
  const all = pending.rows.size;
  const first = groups[0];
  const conclusion = !all
    ? "No pod waits for a node."
    : `${counted(all, "pod waits", "pods wait")} for a node${all === 1 ? "" : `; ${first[1].length === all ? "all" : first[1].length} of them for one reason`}: ${first[0]}.`;
  const shown = useMemo(
    () => [...(groups.find(([reason]) => reason === chosen)?.[1] ?? pending.rows.values())].sort((a, b) => (a.created < b.created ? -1 : Number(a.created > b.created))),
    [groups, chosen],
  );
  return html`<${Panel} title="Pending pods" verdict=${all ? "warn" : "good"} conclusion=${conclusion} sources=${[pending]} command="koord get pending">
    ${all > 0 && html`<${Wide} label="Reasons"><table class="groups">
      <thead><tr><th scope="col">reason</th><th scope="col" class="number">pods</th><th scope="col">classes</th><th scope="col" class="number">waiting for</th></tr></thead>
      <tbody>${groups.map(([reason, rows]) => html`<tr key=${reason} class=${reason === chosen ? "chosen" : ""}>
        <td><button type="button" class="link" aria-pressed=${reason === chosen} onClick=${() => setChosen(reason === chosen ? "" : reason)}>${reason}</button></td>
        <td class="number">${rows.length.toLocaleString("en")}</td>
        <td>${classesOf(rows)}</td>
        <td class="number">${age(rows.map((row) => row.created).sort()[0], now)}</td>
      </tr>`)}</tbody>
    </table><//>`}
    ${all
      ? html`<${Rows} label="Pending pods" rows=${shown} keyOf=${(/** @type {any} */ row) => row.name} columns=${[
          { title: "pod", cell: (/** @type {any} */ row) => html`<${PodLink} name=${row.name} />` },
          { title: "class", cell: (/** @type {any} */ row) => className(row.class) },
          { title: "CPU", isNumber: true, cell: (/** @type {any} */ row) => cores(row.requests.cpu) },
          { title: "memory", isNumber: true, cell: (/** @type {any} */ row) => bytes(row.requests.memory) },
          { title: "waits", isNumber: true, cell: (/** @type {any} */ row) => age(row.created, now) },
          { title: "why", cell: (/** @type {any} */ row) => html`<span title=${row.message}>${row.why}</span>` },
        ]} />`
      : html`<${Empty}>When a pod finds no node, it stands here with the reason and what would unblock it.<//>`}
  <//>`;
}

/** @param {any[]} rows */
function classesOf(rows) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const row of rows) counts[className(row.class)] = (counts[className(row.class)] ?? 0) + 1;
  return Object.entries(counts).map(([name, count]) => `${count.toLocaleString("en")} ${name}`).join(", ");
}
