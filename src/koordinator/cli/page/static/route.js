// Where one is: a place with what is chosen there, and what is explained beside it. All of it is in the address, so
// that a link leads to the same.
import { useEffect, useState } from "./html.js";

/** @typedef {{ place: string, chosen: URLSearchParams, kind: string, name: string }} Route */

/** @type {Route} */
export const route = { place: "", chosen: new URLSearchParams(), kind: "", name: "" };
/** @type {Set<() => void>} */
const listeners = new Set();

/** `#/nodes?name=a`, or `#/explain/pod/shop/web`, which leaves the place as it is. */
function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/").map(decoded);
  if (first === "explain" && rest.length > 1) {
    route.kind = rest[0];
    route.name = rest.slice(1).join("/");
  } else {
    Object.assign(route, { place: first, chosen: new URLSearchParams(query), kind: "", name: "" });
  }
  for (const listener of listeners) listener();
}

/** A link that somebody has cut off is no reason to show nothing. @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of the place, with what is chosen there. */
function address() {
  const query = route.chosen.toString();
  return `#/${route.place}${query && `?${query}`}`;
}

/** What is explained is closed; the place stays. */
export function close() {
  location.hash = address();
}

/** The component is drawn again when the address has changed. */
export function useRoute() {
  const [, draw] = useState({});
  useEffect(() => {
    const look = () => draw({});
    listeners.add(look);
    return () => {
      listeners.delete(look);
    };
  }, []);
  return route;
}

/**
 * Something that is chosen in a place, such as a filter.
 * @param {string} name of it in the address
 * @param {string} initial
 * @returns {[string, (value: string) => void]}
 */
export function useChoice(name, initial) {
  const { chosen } = useRoute();
  const choose = (/** @type {string} */ value) => {
    if (value === initial) chosen.delete(name);
    else chosen.set(name, value);
    // No entry of the history for each letter that is typed.
    if (!route.kind) history.replaceState(null, "", address());
    for (const listener of listeners) listener();
  };
  return [chosen.get(name) ?? initial, choose];
}

addEventListener("hashchange", read);
read();
