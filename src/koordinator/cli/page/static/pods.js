// All pods: a part of the list at a time, which the server selects.
import { html } from "./html.js";
import { Empty, NodeLink, Panel, PodLink, Rows } from "./parts.js";
import { useChoice } from "./route.js";
import { useAnswer } from "./store.js";
import { bytes, className, cores, counted } from "./words.js";

const AGAIN_MS = 5000;

/** @param {{ node?: string }} properties those of one node, or all */
export function Pods({ node = "" }) {
  const [text, setText] = useChoice(node ? "pod" : "name", "");
  const query = new URLSearchParams({ limit: "500", text, ...(node && { node }) });
  const answer = useAnswer(`api/pods?${query}`, AGAIN_MS);
  /** @type {{ pods: any[], more: boolean }} */
  const found = answer.found ?? { pods: [], more: false };
  const { problem } = answer;
  const conclusion = found.more
    ? `The first ${found.pods.length} pods by name: a part of a name finds others.`
    : `${counted(found.pods.length, "pod")}${node ? ` on ${node}` : ""}.`;
  return html`<${Panel} title=${node ? "Pods of the node" : "Pods"} conclusion=${problem || conclusion} command=${node ? `kubectl get pods --all-namespaces --field-selector spec.nodeName=${node}` : "koord top pods"}>
    <div class="controls"><label>Name <input type="search" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label></div>
    ${found.pods.length
      ? html`<${Rows} label="Pods" rows=${found.pods} keyOf=${(/** @type {any} */ row) => row.key} columns=${[
          { title: "pod", cell: (/** @type {any} */ row) => html`<${PodLink} name=${row.key} />` },
          { title: "phase", cell: (/** @type {any} */ row) => row.phase },
          { title: "node", cell: (/** @type {any} */ row) => row.node && html`<${NodeLink} name=${row.node} />` },
          { title: "class", cell: (/** @type {any} */ row) => className(row.class_name) },
          { title: "QoS", cell: (/** @type {any} */ row) => row.qos },
          { title: "CPU requested", isNumber: true, cell: (/** @type {any} */ row) => cores(row.allocated.cpu) },
          { title: "used", isNumber: true, cell: (/** @type {any} */ row) => (row.measured ? cores(row.measured.cpu) : "–") },
          { title: "memory requested", isNumber: true, cell: (/** @type {any} */ row) => bytes(row.allocated.memory) },
          { title: "used", isNumber: true, cell: (/** @type {any} */ row) => (row.measured ? bytes(row.measured.memory) : "–") },
        ]} />`
      : html`<${Empty}>No pod has such a name.<//>`}
  <//>`;
}
