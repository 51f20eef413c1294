// What several panels are made of.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

/** @typedef {"good" | "warn" | "bad" | "unknown"} Verdict */

const VERDICTS = { good: "All well", warn: "Look at this", bad: "Not safe", unknown: "Not known" };

/**
 * A panel: its title, one sentence that says what to conclude, and the command that says the same in a terminal.
 * @param {{ title: string, conclusion?: any, verdict?: Verdict, command?: string, sources?: import("./store.js").Table<any>[],
 *   children?: any }} properties
 */
export function Panel({ title, conclusion, verdict, command, sources = [], children }) {
  const id = `panel-${title.replace(/\W+/g, "-").toLowerCase()}`;
  const missing = [...new Set(sources.flatMap((each) => [each.problem, each.lacks]).filter(Boolean))];
  return html`<section class="panel" aria-labelledby=${id}>
    <header>
      <h2 id=${id}>${title}</h2>
      ${verdict && html`<${Badge} verdict=${verdict} text=${VERDICTS[verdict]} />`}
      ${command && html`<${Command} text=${command} />`}
    </header>
    ${conclusion && html`<p class="conclusion">${conclusion}</p>`}
    ${missing.map((text) => html`<p class="missing" role="status">${text}</p>`)}
    ${children}
  </section>`;
}

/** @param {{ verdict: Verdict, text: string }} properties */
export function Badge({ verdict, text }) {
  return html`<span class=${`badge ${verdict}`}>${text}</span>`;
}

/** A command, and a button that copies it. @param {{ text: string }} properties */
export function Command({ text }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
    } catch {
      // Without the right to write to the clipboard, the command can still be selected.
      window.prompt("The command:", text);
    }
  };
  return html`<button type="button" class="command" title="Copy the command that says the same in a terminal" onClick=${copy}>
    <code>${text}</code><span class="copied" role="status">${copied ? "copied" : ""}</span>
  </button>`;
}

/** What stands where there are no rows. @param {{ children?: any }} properties */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

/** A link to a place of this page. @param {{ to: string, children?: any }} properties */
export function Link({ to, children }) {
  return html`<a href=${`#/${to}`}>${children}</a>`;
}

/** @param {{ name: string }} properties a pod as namespace/name */
export function PodLink({ name }) {
  return html`<${Link} to=${`explain/pod/${name.split("/").map(encodeURIComponent).join("/")}`}>${name}<//>`;
}

/** @param {{ name: string }} properties */
export function NodeLink({ name }) {
  return html`<${Link} to=${`explain/node/${encodeURIComponent(name)}`}>${name}<//>`;
}

/**
 * A bar of parts of a whole, with a text for those who do not see it.
 * @param {{ whole: number, parts: { name: string, value: number, kind: string }[], text: string }} properties
 */
export function Bar({ whole, parts, text }) {
  const full = Math.max(whole, 1, ...parts.map((part) => part.value));
  return html`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=${text}>
    <title>${text}</title>
    <rect class="whole" width="100" height="8" rx="1" />
    ${parts.map(
      (part) => html`<rect class=${part.kind} width=${Math.max(0, (100 * part.value) / full)} height="8" rx="1" />`,
    )}
    ${whole > 0 && whole < full && html`<line class="limit" x1=${(100 * whole) / full} x2=${(100 * whole) / full} y2="8" />`}
  </svg>`;
}

/** What may be wider than the window, and is moved within its frame, by keyboard too. @param {{ label: string, children?: any }} properties */
export function Wide({ label, children }) {
  return html`<div class="wide" tabindex="0" role="group" aria-label=${label}>${children}</div>`;
}

const ROW_HEIGHT = 32;
const MORE_ROWS = 8;

/**
 * A table of any number of rows, of which only those in sight are drawn.
 * @template Row
 * @param {{ label: string, columns: { title: string, cell: (row: Row) => any, isNumber?: boolean, width?: string }[],
 *   rows: Row[], keyOf: (row: Row) => string, height?: number }} properties
 */
export function Rows({ label, columns, rows, keyOf, height = 480 }) {
  const box = /** @type {{ current: HTMLDivElement | null }} */ (useRef(null));
  const [top, setTop] = useState(0);
  const isLong = rows.length * ROW_HEIGHT > height;
  const first = isLong ? Math.max(0, Math.floor(top / ROW_HEIGHT) - MORE_ROWS) : 0;
  const last = isLong ? Math.min(rows.length, first + Math.ceil(height / ROW_HEIGHT) + 2 * MORE_ROWS) : rows.length;
  useLayoutEffect(() => {
    // Rows that have gone must not leave the view below the end.
    const most = Math.max(0, rows.length * ROW_HEIGHT - height);
    if (box.current && box.current.scrollTop > most) box.current.scrollTop = most;
  }, [rows.length, height]);
  return html`<div
    class="rows" ref=${box} tabindex="0" role="group" aria-label=${`Table: ${label}`} style=${{ maxHeight: `${height}px` }}
    onScroll=${(/** @type {Event} */ event) => setTop(/** @type {HTMLElement} */ (event.target).scrollTop)}
  >
    <table aria-rowcount=${rows.length + 1}>
      <thead>
        <tr aria-rowindex="1">
          ${columns.map(({ title, isNumber, width }) => html`<th scope="col" class=${isNumber ? "number" : ""} style=${{ width }}>${title}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${first > 0 && html`<tr aria-hidden="true" style=${{ height: `${first * ROW_HEIGHT}px` }}></tr>`}
        ${rows.slice(first, last).map(
          (row, index) => html`<tr key=${keyOf(row)} aria-rowindex=${first + index + 2}>
            ${columns.map(({ cell, isNumber }) => html`<td class=${isNumber ? "number" : ""}><div>${cell(row)}</div></td>`)}
          </tr>`,
        )}
        ${last < rows.length && html`<tr aria-hidden="true" style=${{ height: `${(rows.length - last) * ROW_HEIGHT}px` }}></tr>`}
      </tbody>
    </table>
  </div>`;
}

const DARK = matchMedia("(prefers-color-scheme: dark)");

/** Which colours the viewer prefers: a canvas has to be drawn again for others. */
export function useScheme() {
  const [isDark, setDark] = useState(DARK.matches);
  useEffect(() => {
    const look = () => setDark(DARK.matches);
    DARK.addEventListener("change", look);
    return () => DARK.removeEventListener("change", look);
  }, []);
  return isDark ? "dark" : "light";
}

/** The time, again every so many seconds. @param {number} seconds */
export function useNow(seconds) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
  return now;
}
