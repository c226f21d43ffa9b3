// The frame around the pages: which one is shown, what is live, the token, the theme and the keyboard.

import { ask, post, Refused } from "./api.js";
import { clock, h } from "./dom.js";
import { overview } from "./overview.js";
import { partition, partitions } from "./partitions.js";
import { changes, findings, nodes } from "./cluster.js";
import { clients, locks } from "./clients.js";
import { records } from "./records.js";

const PAGES = [
  { name: "overview", title: "Overview", make: overview },
  { name: "partitions", title: "Partitions", make: partitions },
  { name: "nodes", title: "Nodes", make: nodes },
  { name: "records", title: "Records", make: records },
  { name: "locks", title: "Locks", make: locks },
  { name: "clients", title: "Clients", make: clients },
  { name: "changes", title: "Changes", make: changes },
  { name: "findings", title: "Findings", make: findings },
];
const byId = (id) => document.getElementById(id);
let shown = null; // the page: { path, update(data), close() }
let turn = 0;
let about = {};

// ---- theme

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function paint() {
  const chosen = localStorage.getItem("waltz-theme");
  document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
}

dark.addEventListener("change", paint);
paint();
byId("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("waltz-theme", now);
  paint();
});

// ---- what is live

function state(one) {
  const live = byId("live");
  document.body.classList.toggle("stale", Boolean(one.error)); // what is shown is what was seen last
  if (one.error) {
    live.className = "live bad";
    live.textContent = one.at ? `Last seen at ${clock(one.at)}` : "Nothing seen yet";
    notice(`The cluster cannot be observed since ${clock(one.failing_since)}: ${one.error}`);
  } else {
    live.className = one.at ? "live ok" : "live";
    live.textContent = one.at ? `Live, ${clock(one.at)}` : "Asking the cluster…";
    notice("");
  }
}

function notice(sentence) {
  if (byId("notice").textContent !== sentence) byId("notice").textContent = sentence;
}

function lost() {
  document.body.classList.add("stale");
  byId("live").className = "live bad";
  byId("live").textContent = "No connection to the console";
}

let events = null;
let resting = false;

// A browser has six connections to the console for all its tabs together, and each stream keeps one. So a tab that
// is not shown gives its streams up as soon as another one is live, and catches up when it is shown.
const tabs = new BroadcastChannel("waltz-console");
tabs.addEventListener("message", () => {
  if (!document.hidden || !events) return;
  resting = true;
  events.close();
  events = null;
  if (shown && shown.rest) shown.rest();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !resting) return;
  listen();
  refresh();
  if (shown && shown.wake) shown.wake();
});

function listen() {
  if (events) events.close();
  resting = false;
  tabs.postMessage("live");
  events = new EventSource("/api/events");
  events.addEventListener("observation", (event) => {
    state(JSON.parse(event.data));
    refresh();
  });
  events.onerror = async () => {
    lost();
    // A browser repeats on its own after a lost connection, and not after a refusal.
    if (events && events.readyState === EventSource.CLOSED) {
      events = null;
      setTimeout(begin, 3000);
    }
  };
}

// ---- pages

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, rest] = path.split("/");
  return { name: name || "overview", rest, query: new URLSearchParams(query || "") };
}

function show() {
  const { name, rest, query } = place();
  if (shown && shown.close) shown.close();
  const page = PAGES.find((one) => one.name === name) || PAGES[0];
  const title = page.name === "partitions" && rest ? `Partition ${rest}` : page.title;
  document.title = `${title} – Waltz console`;
  shown = page.name === "partitions" && rest ? partition(rest) : page.make(query, about);
  byId("page").replaceChildren(h("h1", {}, title), shown.element);
  for (const link of byId("nav").querySelectorAll("a")) {
    if (link.dataset.name === page.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  refresh();
}

async function refresh() {
  if (!shown || !shown.path) return;
  const mine = ++turn;
  try {
    const data = await ask(shown.path);
    if (mine !== turn) return; // a newer question is on its way
    if (data.cluster) byId("cluster").textContent = data.cluster;
    if (data.state) state(data.state);
    shown.update(data);
  } catch (error) {
    if (mine === turn) failed(error);
  }
}

function failed(error) {
  if (error instanceof Refused && error.status === 401) logIn();
  else notice(error.message);
}

// ---- the token

function logIn(sentence) {
  if (events) events.close();
  events = null;
  resting = false;
  shown = null;
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const form = h(
    "form",
    {
      class: "card login",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          await post("login", { token: field.value });
          begin();
        } catch (error) {
          logIn(error.message);
        }
      },
    },
    h("h1", {}, "Log in"),
    h("p", { class: "muted" }, "The link that the console prints when it starts has the token, or the file that it was started with."),
    h("label", { for: "token" }, "Token", field),
    h("button", { type: "submit", class: "primary" }, "Log in"),
  );
  notice(sentence || "");
  byId("page").replaceChildren(form);
  field.focus();
}

async function begin() {
  const given = location.hash.match(/^#token=(.+)$/);
  try {
    if (given) {
      history.replaceState(null, "", "/"); // it is no longer in the address, nor in the history
      await post("login", { token: decodeURIComponent(given[1]) });
    }
    about = await ask("about");
    if (about.name) byId("cluster").textContent = about.name;
    state(about);
    listen();
    show();
  } catch (error) {
    if (error instanceof Refused && error.status === 401) logIn(given ? error.message : "");
    else {
      notice(error.message);
      lost();
      setTimeout(begin, 3000);
    }
  }
}

// ---- keyboard

const KEYS = [
  ...PAGES.map((page, index) => [String(index + 1), page.title, () => (location.hash = `#/${page.name}`)]),
  ["/", "Go to the filter of the page", () => document.querySelector("main input")?.focus()],
  ["t", "Switch between light and dark", () => byId("theme").click()],
  ["?", "Show this list", () => byId("keys").showModal()],
];

byId("keys-list").append(...KEYS.flatMap(([key, what]) => [h("dt", {}, key), h("dd", {}, what)]));
byId("help").addEventListener("click", () => byId("keys").showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const found = KEYS.find(([key]) => key === event.key);
  if (found) {
    event.preventDefault();
    found[2]();
  }
});

byId("nav").append(
  h("ul", {}, PAGES.map((page) => h("li", {}, h("a", { href: `#/${page.name}`, "data-name": page.name }, page.title)))),
);
window.addEventListener("hashchange", () => {
  if (/^#token=/.test(location.hash)) begin();
  else if (events || resting) show();
});
begin();
