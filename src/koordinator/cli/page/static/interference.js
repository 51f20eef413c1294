// Who suffers from whom, and what was done about it.
import { html, useMemo } from "./html.js";
import { Empty, NodeLink, Panel, PodLink, Wide } from "./parts.js";
import { useTables } from "./store.js";
import { counted, moment } from "./words.js";

export function Interference() {
  const [table] = useTables("interference");
  const rows = useMemo(() => [...table.rows.values()].sort((a, b) => `${a.node} ${a.pod}`.localeCompare(`${b.node} ${b.pod}`)), [table.version]);
  const conclusion = rows.length
    ? `${counted(new Set(rows.map((row) => row.pod)).size, "pod suffers", "pods suffer")} from others on the same node.`
    : "No pod suffers from another, as far as is known.";
  return html`<${Panel} title="Interference" verdict=${rows.length ? "bad" : "good"} conclusion=${conclusion} sources=${[table]} command="koord explain interference NODE">
    ${rows.map((row) => html`<article key=${`${row.pod} ${row.indicator}`} class="finding">
      <h3><${PodLink} name=${row.pod} /> on <${NodeLink} name=${row.node} /></h3>
      <p>${row.indicator} is ${row.value}, normally ${row.normal} (limit ${row.limit}), since ${moment(row.since)}.</p>
      ${row.suspects.length
        ? html`<${Wide} label=${`Suspects of ${row.pod}`}><table>
            <thead><tr><th scope="col">suspect</th><th scope="col">QoS</th><th scope="col" class="number">correlation</th><th scope="col" class="number">confidence</th><th scope="col">advice</th></tr></thead>
            <tbody>${row.suspects.map((/** @type {any} */ each) => html`<tr><td><${PodLink} name=${each.pod} /></td><td>${each.qos}</td>
              <td class="number">${each.correlation}</td><td class="number">${each.confidence}</td><td>${each.advice}</td></tr>`)}</tbody>
          </table><//>`
        : html`<p>No pod of the node explains it.</p>`}
      ${row.remedies.length > 0 && html`<ul>${row.remedies.map((/** @type {any} */ each) => html`<li>${each.remedy}: ${each.what} (${each.result}), since ${moment(each.since)}</li>`)}</ul>`}
    </article>`)}
    ${!rows.length && html`<${Empty}>koordlet looks for it where its feature gate InterferenceDetection is on.<//>`}
  <//>`;
}
