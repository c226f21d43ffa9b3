// All partitions, and one of them: who votes what, and why it is not open.

import { bytes, count, dots, finding, h, log, NONE, pill, rate, seconds, STANDING, withCode } from "./dom.js";
import { Table } from "./table.js";

export function partitions(query) {
  const table = new Table({
    caption: "Partitions",
    empty: "No partition matches the filter.",
    keyOf: (row) => row.id,
    columns: [
      { key: "id", label: "Partition", value: (row) => row.id, cell: (row) => h("a", { href: `#/partitions/${row.id}` }, String(row.id)) },
      { key: "writes", label: "Writes", value: (row) => (row.writes ? (row.current < row.replicas.length ? 1 : 2) : 0), cell: state, class: "nowrap" },
      { key: "server", label: "Owner", value: (row) => row.server, class: "nowrap" },
      { key: "generation", label: "Generation", num: true, value: (row) => row.generation },
      { key: "session", label: "Session", num: true, value: (row) => row.session },
      { key: "replicas", label: "Replicas", value: (row) => row.current, sign: (row) => JSON.stringify(row.replicas), cell: (row) => [dots(row.replicas), " ", h("span", { class: "sub" }, `${row.current}/${row.replicas.length}`)], class: "nowrap" },
      { key: "last", label: "Last transaction", num: true, value: (row) => row.last, cell: (row) => count(row.last) },
      { key: "rate", label: "Appends/s", num: true, value: (row) => row.rate, cell: (row) => rate(row.rate) },
      { key: "latency", label: "Latency", num: true, value: (row) => row.latency_seconds, cell: (row) => seconds(row.latency_seconds) },
      { key: "lag", label: "Lag", num: true, value: (row) => row.lag, cell: (row) => count(row.lag) },
      { key: "problem", label: "Problem", value: (row) => row.problem, cell: (row) => row.problem || NONE, class: "wide" },
    ],
  });
  const filter = h("input", { id: "filter", class: "filter", type: "search", placeholder: "node, server, standing, number…", value: query.get("filter") || "" });
  const only = h("input", { id: "only", type: "checkbox" });
  table.keep = (row) => !only.checked || row.problem || !row.writes;
  const caption = () => {
    const [shown, all] = [table.shownRows, table.data.length];
    table.caption.textContent = shown === all ? `${count(all)} partitions` : `${count(shown)} of ${count(all)} partitions`;
  };
  const apply = () => {
    table.filter = filter.value;
    table.arrange();
    caption();
  };
  filter.addEventListener("input", apply);
  only.addEventListener("change", apply);
  table.filter = filter.value;
  const element = h(
    "div",
    {},
    h("div", { class: "tools" }, h("label", { for: "filter" }, "Filter", filter), h("label", { class: "check", for: "only" }, only, "only with a problem")),
    table.element,
  );
  const rows = new Map(); // what was sent stays: an answer holds the rows that have changed since the last one
  let number = 0;
  const update = (data) => {
    if (!data.since) rows.clear();
    for (const row of data.rows) rows.set(row.id, row);
    number = data.number;
    table.show([...rows.values()]);
    caption();
  };
  return { get path() { return `partitions?since=${number}`; }, element, update };
}

function state(row) {
  if (row.writes === null) return pill("unknown", "warn");
  if (!row.writes) return pill("no writes", "bad");
  return row.current < row.replicas.length ? pill("reduced", "warn") : pill("open", "good");
}

export function partition(number) {
  const votes = new Table({
    caption: "Replicas",
    keyOf: (row) => row.node,
    columns: [
      { key: "node", label: "Storage node", heading: true, value: (row) => row.node, class: "nowrap" },
      { key: "votes", label: "Votes", value: (row) => row.votes, cell: (row) => pill(row.votes ? "yes" : "no", row.votes ? "good" : STANDING[row.standing]) },
      { key: "standing", label: "Standing", value: (row) => row.standing, class: "nowrap" },
      { key: "why", label: "Why", value: (row) => row.why, cell: (row) => (row.why === row.standing ? NONE : row.why || NONE), class: "some" },
      { key: "zk", label: "In ZooKeeper", value: (row) => row.in_zookeeper, class: "some" },
      { key: "last", label: "Last", num: true, value: (row) => row.last_transaction, cell: (row) => count(row.last_transaction) },
      { key: "behind", label: "Behind", num: true, value: (row) => row.behind, cell: (row) => count(row.behind) },
      { key: "lwm", label: "Low-water mark", num: true, value: (row) => row.low_water_mark, cell: (row) => count(row.low_water_mark) },
      { key: "local", label: "Local mark", num: true, value: (row) => row.local_low_water_mark, cell: (row) => count(row.local_low_water_mark) },
      { key: "session", label: "Session", num: true, value: (row) => row.session, cell: (row) => row.session ?? NONE },
      { key: "fence", label: "Fence", num: true, value: (row) => row.fence, cell: (row) => row.fence ?? NONE },
      { key: "log", label: "Log", num: true, value: (row) => row.log_bytes, cell: (row) => bytes(row.log_bytes) },
    ],
  });
  const verdict = h("p", { class: "card verdict" });
  const facts = h("dl", { class: "facts" });
  const found = h("div");
  const timeline = h("div");
  const placement = h("ul", {});
  const element = h(
    "div",
    {},
    h("p", {}, h("a", { href: "#/partitions" }, "All partitions"), " · ", h("a", { href: `#/records?partition=${number}` }, "Its records")),
    h("section", { "aria-label": "Verdict" }, verdict),
    h("section", {}, found),
    h("section", {}, votes.element),
    h("div", { class: "two" }, h("section", { class: "card" }, h("h2", {}, "State"), facts), h("section", { class: "card" }, h("h2", {}, "Timeline"), timeline)),
    h("section", { class: "card" }, h("h2", {}, "Why it is here"), placement),
  );
  const update = (data) => {
    verdict.textContent = `${data.verdict[0].toUpperCase()}${data.verdict.slice(1)}.`;
    verdict.className = `card verdict ${data.takes_writes ? (data.findings.length ? "warn" : "good") : "bad"}`;
    facts.replaceChildren(
      ...[
        ["Owner", data.server ?? "none"],
        ["Generation", data.generation ?? NONE],
        ["Store session", data.session ?? NONE],
        ["Votes", `${data.replicas.filter((one) => one.votes).length} of ${data.replicas.length}, ${data.needed} needed for a commit`],
        ["Waits for", data.waits_for || NONE],
        ["Change of replicas", data.changing || "none in progress"],
        ["Last transaction stored", count(data.last)],
        ["Appends per second", rate(data.rate)],
        ["Mean latency in the server", seconds(data.latency_seconds)],
        ["Records in ZooKeeper written", data.recorded_at ? new Date(data.recorded_at * 1000).toLocaleString("en-GB") : NONE],
      ].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]),
    );
    found.replaceChildren(...(data.findings.length ? [h("h2", {}, "Findings and next steps"), ...data.findings.map((one) => finding(one, true))] : []));
    placement.replaceChildren(...data.placement.map((one) => h("li", {}, withCode(one))));
    timeline.replaceChildren(log(data.timeline, "Nothing changed since the console observes."));
    votes.show(data.replicas, `${data.replicas.length} replicas, ${data.needed} needed for a commit`);
  };
  return { path: `partitions/${encodeURIComponent(number)}`, element, update };
}
