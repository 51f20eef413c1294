// The drawer: everything that is known of one pod, node, quota, gang, Reservation or migration.
import { html, useLayoutEffect, useRef } from "./html.js";
import { Bar, Command } from "./parts.js";
import { Pods } from "./pods.js";
import { useAnswer } from "./store.js";
import { amount, moment, resourceName } from "./words.js";

const AGAIN_MS = 3000;

/** @param {{ kind: string, name: string, onClose: () => void }} properties */
export function Drawer({ kind, name, onClose }) {
  const box = /** @type {{ current: HTMLElement | null }} */ (useRef(null));
  const path = `api/explain/${kind}/${name.split("/").map(encodeURIComponent).join("/")}`;
  const { found, problem } = useAnswer(path, AGAIN_MS);
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    box.current?.focus();
    return () => before?.focus?.();
  }, [kind, name]);
  const document_ = found?.document ?? {};
  return html`<div class="drawer" role="dialog" aria-modal="false" aria-label=${`${kind} ${name}`} tabindex="-1" ref=${box}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && onClose()}>
    <div class="heading">
      <h2>${kind} ${name}</h2>
      <button type="button" class="close" onClick=${onClose} aria-label="Close">✕</button>
    </div>
    <${Command} text=${`koord explain ${kind} ${name}`} />
    ${problem && html`<p class="missing" role="status">${problem}</p>`}
    ${found?.note && html`<p class="missing" role="status">${found.note}</p>`}
    ${!found && !problem && html`<p role="status">Asking the programs…</p>`}
    ${document_.timeline && html`<${Timeline} moments=${document_.timeline} />`}
    ${document_.overcommit && html`<${Waterfalls} overcommit=${document_.overcommit} />`}
    ${found && html`<h3>In full</h3><pre tabindex="0">${found.text}</pre>`}
    ${kind === "node" && html`<${Pods} node=${name} />`}
  </div>`;
}

/** @param {{ moments: any[] }} properties */
function Timeline({ moments }) {
  return html`<h3>What happened</h3>
    <ol class="timeline">${moments.map((each) => html`<li>
      <time datetime=${each.time}>${moment(each.time)}</time>
      <span class="program">${each.program}</span>
      <span>${each.what}${each.why ? html`<small>${each.why}</small>` : ""}</span>
    </li>`)}</ol>`;
}

/** How the capacity for batch and mid pods comes about: each term of the sum. @param {{ overcommit: any }} properties */
function Waterfalls({ overcommit }) {
  const amounts = (overcommit.amounts ?? []).filter((/** @type {any} */ each) => each.terms?.length);
  return amounts.map((/** @type {any} */ each) => {
    const most = Math.max(...each.terms.map((/** @type {any} */ term) => Math.abs(term.amount)));
    const rows = [...each.terms, { name: "= offered", amount: each.value, isSum: true }, ...(each.adjustments ?? [])];
    return html`<h3>How much ${resourceName(each.resource)} the node offers</h3>
      <table class="waterfall"><tbody>
        ${rows.map((term) => html`<tr class=${term.isSum ? "sum" : ""}>
          <th scope="row">${inWords(term.name)}</th>
          <td class="number">${amount(each.resource, term.amount ?? 0)}</td>
          <td class="wide-cell"><${Bar} whole=${most} parts=${[{ name: term.name, value: Math.abs(term.amount ?? 0), kind: (term.amount ?? 0) < 0 ? "taken" : "measured" }]}
            text=${`${inWords(term.name)} ${amount(each.resource, term.amount ?? 0)}`} /></td>
        </tr>`)}
      </tbody></table>`;
  });
}

/** systemUsage → system usage. @param {string} name */
function inWords(name) {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}
