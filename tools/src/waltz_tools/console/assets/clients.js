// Who fights over which locks, who waits for whom; and which client follows which partition, how far behind.

import { ask } from "./api.js";
import { bytes, count, h, NONE, pill, rate } from "./dom.js";
import { Table } from "./table.js";

const STATES = { "up to date": "good", "catching up": "warn", "does not read": "bad", "asks for no more": "warn" };
const NAMES = "waltz-lock-names";

// Servers that have no such report: a page must not look complete without them.
function without(element, data) {
  const lines = data.without.map((one) => h("li", {}, `Server ${one.server}: ${one.problem}.`));
  element.replaceChildren(...(lines.length ? [h("div", { class: "card" }, h("h2", {}, "Not complete"), h("ul", {}, lines))] : []));
}

export function clients(query) {
  const table = new Table({
    caption: "Clients",
    keyOf: (row) => `${row.server} ${row.address} ${row.client}`,
    empty: "No client is connected, or none matches the filter.",
    sort: "behind",
    columns: [
      { key: "client", label: "Client", num: true, heading: true, value: (row) => row.client },
      { key: "address", label: "Address", value: (row) => row.address, class: "nowrap" },
      { key: "server", label: "Server", value: (row) => row.server, class: "nowrap" },
      { key: "state", label: "State", value: state, cell: (row) => pill(state(row), STATES[state(row)]), class: "nowrap" },
      { key: "behind", label: "Behind", num: true, value: (row) => (row.following ? row.behind : null), cell: (row) => (row.following ? count(row.behind) : NONE) },
      { key: "unsent", label: "Waits for it", num: true, value: (row) => row.unsent_bytes, cell: (row) => bytes(row.unsent_bytes) },
      { key: "mounted", label: "Partitions", num: true, value: (row) => row.mounted, cell: (row) => h("span", { title: row.partitions }, count(row.mounted)) },
      { key: "which", label: "Which", value: (row) => row.partitions, cell: (row) => row.partitions || NONE, class: "some" },
      { key: "furthest", label: "Furthest behind", value: (row) => row.furthest.length, sign: (row) => JSON.stringify(row.furthest), cell: furthest, class: "wide" },
      { key: "version", label: "Protocol", num: true, value: (row) => row.version },
    ],
  });
  table.descending = true;
  table.heads.find((head) => head.dataset.key === "behind").setAttribute("aria-sort", "descending");
  const filter = h("input", { id: "filter", class: "filter", type: "search", placeholder: "client, address, server, state…", value: query.get("filter") || "" });
  filter.addEventListener("input", () => { table.filter = filter.value; table.arrange(); });
  table.filter = filter.value;
  const problems = h("section");
  const element = h(
    "div",
    {},
    h("div", { class: "tools" }, h("label", { for: "filter" }, "Filter", filter)),
    h("section", {}, table.element),
    problems,
    h("p", { class: "muted" }, "Behind: transactions that the server has not sent yet. What a client has applied of those that it was sent is known to the client only."),
  );
  const update = (data) => {
    const more = data.left_out ? `, ${count(data.left_out)} more are less far behind` : "";
    table.show(data.rows, `${count(data.rows.length)} clients, ${count(data.connections)} connections with tools${more}`);
    without(problems, data);
  };
  return { path: "clients", element, update };
}

function state(row) {
  if (!row.following) return row.mounted ? "follows nothing" : "mounts nothing";
  const worst = ["does not read", "asks for no more", "catching up"].find((one) => row.furthest.some((other) => other.behind && other.state === one));
  return worst || "up to date";
}

function furthest(row) {
  const late = row.furthest.filter((one) => one.behind);
  if (!late.length) return NONE;
  return late.slice(0, 3).flatMap((one, index) => [
    index ? "; " : "",
    h("a", { href: `#/partitions/${one.partition}` }, `partition ${one.partition}`),
    `: ${count(one.behind)}`,
  ]);
}

export function locks() {
  let known = {}; // hash -> name
  let data = null;
  const lockCell = (row) => (known[row.lock] ? [h("strong", {}, known[row.lock]), " ", h("span", { class: "sub mono" }, row.hash)] : h("span", { class: "mono" }, row.hash));
  const lock = { key: "lock", label: "Lock", value: (row) => known[row.lock] || row.hash, cell: lockCell, class: "nowrap" };
  const partition = { key: "partition", label: "Partition", num: true, value: (row) => row.partition, cell: (row) => h("a", { href: `#/partitions/${row.partition}` }, String(row.partition)) };
  const contended = new Table({
    caption: "Contended locks",
    keyOf: (row) => `${row.partition} ${row.lock}`,
    empty: "No append was refused for a lock, and none had to wait for one.",
    sort: "conflicts",
    columns: [
      lock, partition,
      { key: "rate", label: "Conflicts/s", num: true, value: (row) => row.rate, cell: (row) => rate(row.rate) },
      { key: "conflicts", label: "Conflicts", num: true, value: (row) => row.conflicts, cell: (row) => counted(row.conflicts, row.over) },
      { key: "waits", label: "Waits", num: true, value: (row) => row.waits, cell: (row) => count(row.waits) },
      { key: "last", label: "Last conflict", value: (row) => row.transaction, cell: last, class: "wide" },
    ],
  });
  const pairs = new Table({
    caption: "Who was refused for whom",
    keyOf: (row) => `${row.partition} ${row.lock} ${row.winner} ${row.loser}`,
    empty: "Nobody.",
    sort: "conflicts",
    columns: [
      { key: "loser", label: "Refused", num: true, value: (row) => row.loser, cell: (row) => `client ${row.loser}` },
      { key: "winner", label: "For", num: true, value: (row) => row.winner, cell: (row) => (row.winner === null ? NONE : `client ${row.winner}`) },
      lock, partition,
      { key: "conflicts", label: "Conflicts", num: true, value: (row) => row.conflicts, cell: (row) => counted(row.conflicts, row.over) },
    ],
  });
  const waiting = new Table({
    caption: "Who waits for whom now",
    keyOf: (row) => `${row.partition} ${row.lock}`,
    empty: "Nobody waits for a lock.",
    sort: "count",
    columns: [
      lock, partition,
      { key: "holder", label: "Has it", num: true, value: (row) => row.holder, cell: (row) => (row.holder === null ? NONE : `client ${row.holder}`) },
      { key: "clients", label: "Wait for it, in this order", value: (row) => row.clients.join(", "), class: "wide" },
      { key: "count", label: "Number", num: true, value: (row) => row.count, cell: (row) => count(row.count) },
    ],
  });
  for (const table of [contended, pairs, waiting]) {
    table.descending = true;
    table.heads.find((head) => head.dataset.key === table.sortKey).setAttribute("aria-sort", "descending");
  }
  const field = h("input", { id: "names", class: "filter", type: "text", placeholder: "account/alice seat/12", value: sessionStorage.getItem(NAMES) || "" });
  const says = h("p", { class: "sub", role: "status" });
  const resolve = async (event) => {
    if (event) event.preventDefault();
    const names = field.value.split(/[\s,]+/).filter(Boolean);
    sessionStorage.setItem(NAMES, field.value);
    known = {};
    try {
      const found = names.length ? await ask(`hashes?${names.map((name) => `name=${encodeURIComponent(name)}`).join("&")}`) : {};
      for (const [name, hashes] of Object.entries(found)) for (const hash of hashes) known[hash] = known[hash] || name;
      says.textContent = names.length ? `${names.length} ${names.length === 1 ? "name is" : "names are"} shown in place of ${names.length === 1 ? "its hash" : "their hashes"}.` : "";
    } catch (error) {
      says.textContent = error.message;
    }
    if (data) update(data);
  };
  const summary = h("p", {});
  const problems = h("section");
  const element = h(
    "div",
    {},
    summary,
    h("form", { class: "tools", onsubmit: resolve }, h("label", { for: "names" }, "Names of locks (NAME/KEY)", field), h("button", { type: "submit" }, "Show names")),
    says,
    h("section", {}, contended.element),
    h("section", {}, waiting.element),
    h("section", {}, pairs.element),
    problems,
    h("p", { class: "muted" }, "A lock travels as a hash of 32 bits, so servers do not know its name: type the names that you know. Counts are those since the server has the partition; ± is how far one may be off."),
  );
  const update = (one) => {
    data = one;
    const perSecond = one.refused_per_second === null ? "" : `, ${rate(one.refused_per_second)} per second now`;
    summary.textContent = `${count(one.refused)} appends were refused for a lock${perSecond}.`;
    contended.show(one.rows, `${count(one.rows.length)} contended locks`);
    pairs.show(one.pairs, "Who was refused for whom");
    waiting.show(one.waiting, "Who waits for whom now");
    without(problems, one);
  };
  if (field.value) resolve();
  return { path: "locks", element, update };
}

function counted(value, over) {
  return over ? `${count(value)} ±${count(over)}` : count(value);
}

function last(row) {
  if (row.transaction === null) return NONE;
  const won = row.winner === null ? "" : ` of client ${row.winner}`;
  return [`client ${row.loser} was refused for `, h("a", { href: `#/records?partition=${row.partition}&from=${row.transaction}` }, `transaction ${count(row.transaction)}`), won];
}
