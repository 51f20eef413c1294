// The frame of the page: where one is, whether what is shown is current, and the panels of the place.
import { Devices } from "./devices.js";
import { Drawer } from "./explain.js";
import { html, render, useEffect, useState } from "./html.js";
import { Interference } from "./interference.js";
import { Moves } from "./moves.js";
import { Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { Pending } from "./pending.js";
import { Pods } from "./pods.js";
import { close, useRoute } from "./route.js";
import { connection, follow, signIn, useConnection, useTables, versions } from "./store.js";
import { Tenants } from "./tenants.js";
import { WhatIf } from "./what_if.js";
import { moment } from "./words.js";

/** @type {Record<string, { title: string, view: any }>} */
const PLACES = {
  overview: { title: "Overview", view: Overview },
  nodes: { title: "Nodes", view: Nodes },
  pending: { title: "Pending", view: Pending },
  tenants: { title: "Quotas and gangs", view: Tenants },
  interference: { title: "Interference", view: Interference },
  moves: { title: "Moves", view: Moves },
  devices: { title: "Devices", view: Devices },
  pods: { title: "Pods", view: Pods },
  "what-if": { title: "What if?", view: WhatIf },
};

function Page() {
  const route = useRoute();
  const { kind, name } = route;
  const place = Object.hasOwn(PLACES, route.place) ? route.place : "overview";
  const { title, view: View } = PLACES[place];
  const { needs } = useConnection();
  useEffect(() => {
    document.title = `${kind ? `${kind} ${name}` : title} – Koordinator`;
  }, [title, kind, name]);
  return html`<a class="skip" href="#content">Skip to the content</a>
    <${Header} place=${place} />
    <div class="body">
      <main id="content" tabindex="-1"><h1 class="hidden">${title}</h1>${needs === "token" ? html`<${SignIn} />` : html`<${View} />`}</main>
      ${kind && html`<${Drawer} kind=${kind} name=${name} onClose=${close} />`}
    </div>`;
}

function SignIn() {
  const [token, setToken] = useState("");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    signIn(token);
  };
  return html`<section class="panel" aria-labelledby="sign-in">
    <h2 id="sign-in">Sign in</h2>
    <p class="conclusion">Show a token of the cluster, and you see what its roles let you see. The token stays in this tab.
      For an account, this makes one: <code>kubectl create token NAME -n NAMESPACE</code></p>
    <form class="what-if" onSubmit=${submit}>
      <label class="file">Token <input type="password" autocomplete="off" required value=${token} onInput=${(/** @type {any} */ event) => setToken(event.target.value)} /></label>
      <button type="submit">Sign in</button>
    </form>
  </section>`;
}

/** @param {{ place: string }} properties */
function Header({ place }) {
  const [contact, pending, interference] = useTables("contact", "pending", "interference");
  const api = contact.rows.get("api");
  /** @type {Record<string, number>} */
  const counts = { pending: pending.rows.size, interference: interference.rows.size };
  return html`<header class="top">
    <div class="name"><img src="static/icon.svg" alt="" width="24" height="24" /><strong>Koordinator</strong>
      <span class="cluster" title=${api?.cluster ?? ""}>${api ? api.context || api.server : ""}</span></div>
    <nav aria-label="Places"><ul>
      ${Object.entries(PLACES).map(([key, { title }]) => html`<li><a href=${`#/${key}`} aria-current=${key === place ? "page" : undefined}>
        ${title}${counts[key] ? html`<span class="count">${counts[key].toLocaleString("en")}</span>` : ""}</a></li>`)}
    </ul></nav>
    <${Contact} problem=${contact.problem} />
  </header>`;
}

/** Whether what is shown is current. @param {{ problem: string }} properties */
function Contact({ problem }) {
  const { link, since, needs } = useConnection();
  if (needs === "link") return html`<p class="contact bad" role="alert">This page needs a new link: run <code>koord page</code> again.</p>`;
  if (needs === "token") return html`<p class="contact unknown" role="status">not signed in</p>`;
  if (link === "lost") return html`<p class="contact bad" role="alert">The server of this page is lost since ${moment(new Date(since).toISOString())}: what you see is from before.</p>`;
  if (problem) return html`<p class="contact bad" role="alert">The API server does not answer: what you see is from before. ${problem}</p>`;
  return html`<p class="contact ${link === "live" ? "good" : "unknown"}" role="status">${link === "live" ? "live" : "connecting…"}</p>`;
}

const root = document.getElementById("page");
if (root) render(html`<${Page} />`, root);
follow();
// For those who look into it from the console.
Object.assign(window, { koordinator: { connection, versions } });
