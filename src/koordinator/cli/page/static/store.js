// What the server sends: tables of rows, whole at first, and then what changes, once a second.
import { useEffect, useMemo, useState } from "./html.js";

/**
 * @template Row
 * @typedef {object} Table
 * @property {Map<string, Row>} rows by key
 * @property {string} problem why the rows are not known; empty where they are
 * @property {string} lacks which right of the viewer is missing; empty where none is
 * @property {number} version grows with each change
 * @property {number} keysVersion grows when rows come or go
 */

/** @typedef {"connecting" | "live" | "lost"} Link */

/** How long the server may say nothing: it says something at least every five seconds. */
const SILENCE_MS = 12000;

/** @type {Map<string, Table<any>>} */
const tables = new Map();
/** @type {Set<() => void>} */
const listeners = new Set();
/** What a viewer has to do to see anything: open another link, or show a token. @typedef {"" | "link" | "token"} Needs */

/** @type {{ link: Link, since: number, needs: Needs }} */
export const connection = { link: "connecting", since: Date.now(), needs: "" };
const TOKEN = "koordinator-token";
let version = 0;

/**
 * @param {string} name
 * @returns {Table<any>}
 */
export function table(name) {
  let found = tables.get(name);
  if (!found) {
    found = { rows: new Map(), problem: "", lacks: "", version: 0, keysVersion: 0 };
    tables.set(name, found);
  }
  return found;
}

/** How current each table is. */
export const versions = () => [...tables.values()].map((each) => each.version);

/**
 * The tables of these names; the component is drawn again when one of them has changed.
 * @param {...string} names
 */
export function useTables(...names) {
  const stamp = () => names.map((name) => table(name).version).join();
  const [, draw] = useState(stamp());
  useEffect(() => {
    const look = () => draw(stamp());
    listeners.add(look);
    look();
    return () => {
      listeners.delete(look);
    };
  }, names);
  return names.map(table);
}

/**
 * The rows of a table by name. Thousands are put into order only when some come or go, not with each change.
 * @param {Table<any>} table
 * @returns {any[]}
 */
export function useRowsByName(table) {
  const keys = useMemo(() => [...table.rows.keys()].sort(byName), [table.keysVersion]);
  return useMemo(() => keys.map((key) => table.rows.get(key)), [keys, table.version]);
}

/** node-2 before node-10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;

/** The state of the connection; the component is drawn again when it has changed. */
export function useConnection() {
  const [, draw] = useState("");
  useEffect(() => {
    const look = () => draw(`${connection.link} ${connection.needs}`);
    listeners.add(look);
    look();
    return () => {
      listeners.delete(look);
    };
  }, []);
  return connection;
}

/** @param {Link} link */
function setLink(link) {
  if (connection.link !== link) {
    connection.link = link;
    connection.since = Date.now();
    tell();
  }
}

let isTold = true;

/** All that has changed until the browser paints next is drawn at once; in a tab that is not in sight, not at all. */
function tell() {
  if (!isTold) return;
  isTold = false;
  requestAnimationFrame(() => {
    isTold = true;
    for (const listener of listeners) listener();
  });
}

/** @param {{ whole: boolean, tables: Record<string, { rows: Record<string, any>, problem: string, lacks: string }> }} turn */
function take(turn) {
  for (const [name, change] of Object.entries(turn.tables)) {
    const known = table(name);
    const before = known.rows.size;
    let isOther = turn.whole;
    if (turn.whole) known.rows.clear();
    for (const [key, row] of Object.entries(change.rows)) {
      if (row === null) isOther = known.rows.delete(key) || isOther;
      else known.rows.set(key, row);
    }
    known.problem = change.problem;
    known.lacks = change.lacks;
    known.version = ++version;
    if (isOther || known.rows.size !== before) known.keysVersion = version;
  }
  tell();
}

let wake = () => {};

/**
 * Show a token of the cluster from now on. It is kept for this tab alone, until it is closed.
 * @param {string} token
 */
export function signIn(token) {
  sessionStorage.setItem(TOKEN, token.trim());
  wake();
}

/** @returns {Record<string, string>} the headers that say who asks; nothing where a cookie does */
function credentials() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Whether a response asks who this is. @param {Response} response */
function note(response) {
  const wanted = response.headers.get("www-authenticate") ? "token" : "link";
  const needs = /** @type {Needs} */ (response.status === 401 ? wanted : "");
  if (needs !== connection.needs) {
    connection.needs = needs;
    if (needs) for (const known of tables.values()) known.rows.clear();
    tell();
  }
}

/** Read the stream for as long as the page is open. A lost server is asked again, less and less often. */
export async function follow() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
    try {
      await readStream(() => {
        pause = 500;
      });
    } catch (error) {
      console.info("the stream has ended:", error);
    }
    setLink("lost");
    await new Promise((resolve) => {
      wake = () => resolve(undefined);
      setTimeout(resolve, pause);
    });
  }
}

/** @param {() => void} onNews */
async function readStream(onNews) {
  const abort = new AbortController();
  let timer = setTimeout(() => abort.abort(), SILENCE_MS);
  try {
    const response = await fetch("api/stream", { signal: abort.signal, cache: "no-store", headers: credentials() });
    note(response);
    if (!response.ok || !response.body) throw new Error(await response.text());
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    /** @type {string[]} */
    let parts = [];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENCE_MS);
      // The first event of a large cluster comes in hundreds of parts: it is put together once.
      const isEnd = value.includes("\n\n") || (value.startsWith("\n") && parts.at(-1)?.endsWith("\n"));
      parts.push(value);
      if (!isEnd) continue;
      const events = parts.join("").split("\n\n");
      parts = [events.pop() ?? ""];
      for (const event of events) {
        if (event.startsWith("data: ")) take(JSON.parse(event.slice(6)));
      }
      setLink("live");
      onNews();
    }
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

/**
 * Ask the server something.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>} the document; an Error says why there is none
 */
export async function ask(path, signal) {
  return documentOf(await fetch(path, { cache: "no-store", signal, headers: credentials() }));
}

/**
 * What the server answers, asked again so long after each answer: one that takes long is waited for, and not asked twice.
 * @param {string} path
 * @param {number} again milliseconds
 * @returns {{ found: any, problem: string }} nothing found for another path until it has answered
 */
export function useAnswer(path, again) {
  const [answer, setAnswer] = useState({ path, found: /** @type {any} */ (null), problem: "" });
  useEffect(() => {
    const abort = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const read = async () => {
      try {
        const found = await ask(path, abort.signal);
        setAnswer({ path, found, problem: "" });
      } catch (error) {
        if (abort.signal.aborted) return;
        const problem = String(error instanceof Error ? error.message : error);
        setAnswer((before) => ({ path, found: before.path === path ? before.found : null, problem }));
      }
      if (!abort.signal.aborted) timer = setTimeout(read, again);
    };
    read();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, again]);
  return answer.path === path ? answer : { found: null, problem: "" };
}

/**
 * Ask it to do something. A form of another site could not send this header.
 * @param {string} path
 * @param {any} body
 * @returns {Promise<any>} the document; an Error says why there is none
 */
export async function askTo(path, body) {
  const headers = { "Content-Type": "application/json", "X-Koordinator-Page": "1", ...credentials() };
  return documentOf(await fetch(path, { method: "POST", cache: "no-store", headers, body: JSON.stringify(body) }));
}

/** @param {Response} response */
async function documentOf(response) {
  const isJson = (response.headers.get("content-type") ?? "").startsWith("application/json");
  const found = isJson ? await response.json() : { problem: await response.text() };
  if (!response.ok) throw new Error(found.problem || `the server answers ${response.status}`);
  return found;
}
