// Nodes, changes and findings.

import { bytes, count, days, finding, h, log, NONE, pill, rate, span, STANDING } from "./dom.js";
import { Table } from "./table.js";

export function nodes() {
  const storage = new Table({
    caption: "Storage nodes",
    keyOf: (row) => row.node,
    empty: "No storage node is known.",
    columns: [
      { key: "node", label: "Storage node", heading: true, value: (row) => row.node, class: "nowrap" },
      { key: "state", label: "State", value: (row) => (row.error ? 0 : row.full ? 1 : 2), cell: nodeState, sign: (row) => `${row.error}${row.full}` },
      { key: "error", label: "Problem", value: (row) => row.error, cell: (row) => row.error || NONE, class: "some" },
      { key: "group", label: "Group", num: true, value: (row) => row.group },
      { key: "partitions", label: "Partitions", num: true, value: (row) => row.partitions, cell: (row) => h("span", { title: row.ranges }, count(row.partitions)) },
      { key: "current", label: "Current", num: true, value: (row) => row.current, cell: (row) => count(row.current) },
      { key: "rate", label: "Records/s", num: true, value: (row) => row.rate, cell: (row) => rate(row.rate) },
      { key: "log", label: "Logs", num: true, value: (row) => row.log_bytes, cell: (row) => bytes(row.log_bytes) },
      { key: "growth", label: "Growth/day", num: true, value: (row) => row.growth_bytes_per_day, cell: (row) => bytes(row.growth_bytes_per_day) },
      { key: "disk", label: "Disk used", value: (row) => used(row), cell: disk, class: "nowrap" },
      { key: "days", label: "Full in", num: true, value: (row) => row.days_to_full, cell: (row) => days(row.days_to_full) },
    ],
  });
  const servers = new Table({
    caption: "Servers",
    keyOf: (row) => row.server,
    empty: "No server is registered.",
    columns: [
      { key: "server", label: "Server", heading: true, value: (row) => row.server, class: "nowrap" },
      { key: "state", label: "State", value: (row) => (row.answers ? (row.cut_off.length ? 1 : 2) : 0), cell: serverState, class: "nowrap" },
      { key: "id", label: "Id", num: true, value: (row) => row.id },
      { key: "partitions", label: "Partitions", num: true, value: (row) => row.partitions, cell: (row) => count(row.partitions) },
      { key: "ranges", label: "Which", value: (row) => row.ranges, cell: (row) => row.ranges || NONE },
      { key: "rate", label: "Appends/s", num: true, value: (row) => row.rate, cell: (row) => rate(row.rate) },
      { key: "unreached", label: "Does not reach", value: (row) => row.unreached.join(", "), cell: (row) => row.unreached.join(", ") || NONE, class: "wide" },
    ],
  });
  const element = h("div", {}, h("section", {}, storage.element), h("section", {}, servers.element));
  const update = (data) => {
    storage.show(data.nodes, `${data.nodes.length} storage nodes`);
    servers.show(data.servers, `${data.servers.length} servers`);
  };
  return { path: "nodes", element, update };
}

function nodeState(row) {
  if (row.error) return pill("silent", "bad");
  return row.full ? pill("disk full", "bad") : pill("answers", "good");
}

function serverState(row) {
  if (!row.answers) return pill("silent", "bad");
  return row.cut_off.length ? pill("cut off", "warn") : pill("answers", "good");
}

function used(row) {
  return row.size_bytes ? 1 - (row.free_bytes ?? 0) / row.size_bytes : null;
}

function disk(row) {
  const share = used(row);
  if (share === null) return NONE;
  const fill = h("i", { class: row.full ? "bad" : share > 0.9 ? "warn" : "" });
  fill.style.width = `${Math.round(share * 100)}%`;
  return [h("div", { class: "bar", "aria-hidden": "true" }, fill), h("span", { class: "sub" }, `${Math.round(share * 100)} % of ${bytes(row.size_bytes)}`)];
}

export function changes() {
  const copies = new Table({
    caption: "Copies that are not current",
    keyOf: (row) => `${row.partition}/${row.node}`,
    empty: "Every copy is current: nothing is filled, moved or waited for.",
    sort: "partition",
    columns: [
      { key: "partition", label: "Partition", value: (row) => row.partition, cell: (row) => h("a", { href: `#/partitions/${row.partition}` }, String(row.partition)) },
      { key: "node", label: "Storage node", value: (row) => row.node, class: "nowrap" },
      { key: "standing", label: "Standing", value: (row) => row.standing, cell: (row) => pill(row.standing, STANDING[row.standing]) },
      { key: "done", label: "Filled", value: (row) => row.done, cell: progress },
      { key: "lag", label: "Behind", num: true, value: (row) => row.lag, cell: (row) => count(row.lag) },
      { key: "rate", label: "Records/s", num: true, value: (row) => row.rate, cell: (row) => rate(row.rate) },
      { key: "left", label: "Time left", num: true, value: (row) => row.seconds_left, cell: (row) => span(row.seconds_left) },
      { key: "why", label: "Why", value: (row) => row.why, cell: (row) => row.why || NONE, class: "wide" },
      { key: "blocked", label: "Blocked by", value: (row) => row.blocked_by, cell: (row) => row.blocked_by || NONE, class: "wide" },
    ],
  });
  const incomplete = h("div");
  const lately = h("div");
  const element = h(
    "div",
    {},
    h("section", {}, copies.element),
    h("div", { class: "two" },
      h("section", { class: "card" }, h("h2", {}, "Changes of replicas in progress"), incomplete),
      h("section", { class: "card" }, h("h2", {}, "What changed since the console observes"), lately)),
  );
  const update = (data) => {
    copies.show(data.copies, `${count(data.copies.length)} copies that are not current`);
    incomplete.replaceChildren(
      data.incomplete.length
        ? h("ul", {}, data.incomplete.map((one) => h("li", {}, h("a", { href: `#/partitions/${one.partition}` }, `Partition ${one.partition}`), `: ${one.why}`)))
        : h("p", { class: "muted" }, "None."),
    );
    lately.replaceChildren(log(data.log, "Nothing yet."));
  };
  return { path: "changes", element, update };
}

function progress(row) {
  if (row.done === null) return NONE;
  const fill = h("i");
  fill.style.width = `${Math.floor(row.done * 100)}%`;
  return [h("div", { class: "bar", "aria-hidden": "true" }, fill), h("span", { class: "sub" }, `${(Math.floor(row.done * 1000) / 10).toFixed(1)} %`)];
}

export function findings() {
  const element = h("div");
  const update = (data) => {
    // What a reader opened stays open.
    const open = new Set([...element.querySelectorAll("details[open]")].map((one) => one.dataset.key));
    const { stopped, reduced, soon } = data.counts;
    const parts = data.rows.map((one) => {
      const card = finding(one, false);
      const details = card.querySelector("details");
      details.dataset.key = one.finding;
      details.open = open.has(one.finding);
      card.querySelector(".what").after(h("p", { class: "sub" }, one.meaning));
      return card;
    });
    element.replaceChildren(
      h("p", {}, pill(`${stopped} without writes`, stopped ? "bad" : ""), " ", pill(`${reduced} with less protection`, reduced ? "warn" : ""), " ", pill(`${soon} soon`, "")),
      ...(parts.length ? parts : [h("p", { class: "card verdict good" }, "No findings.")]),
    );
  };
  return { path: "findings", element, update };
}
