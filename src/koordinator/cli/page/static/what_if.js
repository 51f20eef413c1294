// What would happen: a change is tried on a copy of the cluster, and nothing is written.
import { html, useState } from "./html.js";
import { Bar, Panel, Rows } from "./parts.js";
import { askTo } from "./store.js";

/** @typedef {{ name: string, title: string, type: "text" | "number" | "file" | "check" | "names", value?: any }} Field */

/** @type {Record<string, { title: string, fields: Field[] }>} */
const CHANGES = {
  drain: { title: "Drain nodes", fields: [{ name: "nodes", title: "Nodes", type: "names" }, { name: "force", title: "Also pods without a controller, which are lost", type: "check" }] },
  "remove-node": { title: "Lose nodes", fields: [{ name: "nodes", title: "Nodes", type: "names" }] },
  "add-node": { title: "Add nodes", fields: [{ name: "like", title: "Like the node", type: "text" }, { name: "count", title: "How many", type: "number", value: 1 }] },
  scale: { title: "Scale a workload", fields: [{ name: "workload", title: "Kind/name, such as deployment/web", type: "text" }, { name: "namespace", title: "Namespace", type: "text", value: "default" }, { name: "replicas", title: "Pods", type: "number", value: 10 }] },
  apply: { title: "Create objects", fields: [{ name: "file", title: "Their YAML", type: "file" }] },
  fit: { title: "How many more fit?", fields: [{ name: "file", title: "The YAML of a pod or workload", type: "file" }] },
  config: { title: "Configure the scheduler otherwise", fields: [{ name: "file", title: "KubeSchedulerConfiguration", type: "file" }, { name: "replay", title: "As if it had always been so", type: "check" }] },
  colocation: { title: "Offer other batch capacity", fields: [{ name: "file", title: "The ConfigMap slo-controller-config", type: "file" }] },
};

export function WhatIf() {
  const [change, setChange] = useState("add-node");
  const [given, setGiven] = useState(/** @type {Record<string, any>} */ ({}));
  const [state, setState] = useState(/** @type {{ running: boolean, problem: string, found: any }} */ ({ running: false, problem: "", found: null }));
  const { fields } = CHANGES[change];
  const run = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setState({ running: true, problem: "", found: null });
    try {
      const body = Object.fromEntries(fields.map((field) => [field.name, valueOf(field, given[field.name])]));
      setState({ running: false, problem: "", found: await askTo("api/what-if", { change, ...body }) });
    } catch (error) {
      setState({ running: false, problem: String(error instanceof Error ? error.message : error), found: null });
    }
  };
  const set = (/** @type {string} */ name, /** @type {any} */ value) => setGiven({ ...given, [name]: value });
  return html`<${Panel} title="What if?" conclusion=${state.found ? state.found.conclusion : "A change is tried on a copy of the cluster, by the scheduler that places the real pods. Nothing is written."}
    command=${state.found?.command ?? `koord what-if ${change}`}>
    <form class="what-if" onSubmit=${run}>
      <label>Change <select value=${change} onChange=${(/** @type {any} */ event) => {
        setChange(event.target.value);
        setState({ running: false, problem: "", found: null });
      }}>
        ${Object.entries(CHANGES).map(([key, { title }]) => html`<option value=${key}>${title}</option>`)}
      </select></label>
      ${fields.map((field) => html`<${Input} key=${`${change} ${field.name}`} field=${field} value=${given[field.name]} set=${set} />`)}
      <button type="submit" disabled=${state.running}>${state.running ? "Simulating…" : "Simulate"}</button>
    </form>
    ${state.running && html`<p role="status">The cluster is copied and the change is tried on it: some seconds, longer for thousands of pods.</p>`}
    ${state.problem && html`<p class="missing" role="alert">${state.problem}</p>`}
    ${state.found && html`<${Outcome} found=${state.found} />`}
  <//>`;
}

/** @param {Field} field @param {any} value */
function valueOf(field, value) {
  const found = value ?? field.value ?? "";
  if (field.type === "number") return Number(found);
  if (field.type === "check") return found === true;
  if (field.type === "names") return String(found).split(/[\s,]+/).filter(Boolean);
  return String(found);
}

/** @param {{ field: Field, value: any, set: (name: string, value: any) => void }} properties */
function Input({ field, value, set }) {
  const { name, title, type } = field;
  if (type === "check") {
    return html`<label><input type="checkbox" checked=${value === true} onChange=${(/** @type {any} */ event) => set(name, event.target.checked)} /> ${title}</label>`;
  }
  if (type === "file") {
    return html`<label class="file">${title}<textarea rows="10" spellcheck=${false} value=${value ?? ""} onInput=${(/** @type {any} */ event) => set(name, event.target.value)}></textarea></label>`;
  }
  return html`<label>${title} <input type=${type === "number" ? "number" : "text"} min="0" required value=${value ?? field.value ?? ""}
    onInput=${(/** @type {any} */ event) => set(name, event.target.value)} /></label>`;
}

/** @param {{ found: any }} properties */
function Outcome({ found }) {
  const nodes = (found.document.nodes ?? []).filter((/** @type {any} */ each) => each.resources.cpu);
  return html`${nodes.length > 0 && html`<h3>CPU requested, before and after</h3>
      <${Rows} label="Nodes before and after" rows=${nodes} keyOf=${(/** @type {any} */ row) => row.node} height=${320} columns=${[
        { title: "node", cell: (/** @type {any} */ row) => `${row.node}${row.state === "changed" ? "" : ` (${row.state})`}` },
        { title: "before", width: "10rem", cell: (/** @type {any} */ row) => html`<${Share} of=${row.resources.cpu.before} />` },
        { title: "", isNumber: true, cell: (/** @type {any} */ row) => shareText(row.resources.cpu.before) },
        { title: "after", width: "10rem", cell: (/** @type {any} */ row) => html`<${Share} of=${row.resources.cpu.after} />` },
        { title: "", isNumber: true, cell: (/** @type {any} */ row) => shareText(row.resources.cpu.after) },
      ]} />`}
    <h3>In full</h3>
    <pre tabindex="0">${found.text}</pre>`;
}

/** @param {{ of: { requested: string, allocatable: string, percent: number | null } }} properties */
function Share({ of }) {
  const text = `${of.requested} of ${of.allocatable} requested`;
  return html`<${Bar} whole=${100} parts=${[{ name: "requested", value: of.percent ?? 0, kind: "measured" }]} text=${text} />`;
}

/** @param {{ percent: number | null }} share */
function shareText({ percent }) {
  return percent === null ? "–" : `${percent} %`;
}
