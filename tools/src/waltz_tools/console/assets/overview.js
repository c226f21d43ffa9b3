// Is it well, how much is written, what changed lately.

import { bytes, count, days, finding, h, log, rate, seconds, svg } from "./dom.js";

export function overview() {
  const element = h("div");
  return { path: "overview", element, update: (data) => element.replaceChildren(...parts(data)) };
}

function parts(data) {
  const { partitions, servers, nodes } = data;
  return [
    h("section", { "aria-label": "Verdict" }, verdict(data)),
    h(
      "section",
      { "aria-label": "Figures" },
      h(
        "div",
        { class: "tiles" },
        tile("Partitions with writes", count(partitions.all - partitions.closed - partitions.unknown),
          `of ${count(partitions.all)}; ${partitions.closed ? `${count(partitions.closed)} without writes` : partitions.unknown ? `${count(partitions.unknown)} unknown` : partitions.reduced ? `${count(partitions.reduced)} with fewer current replicas` : "all replicas current"}`),
        tile("Appends per second", rate(data.appends_per_second), `${count(data.transactions)} transactions`),
        tile("Latency of appends", seconds(data.latency.p50_seconds), data.latency.p99_seconds === null ? "in the server; no append was seen" : `in the server, half of them; 99 %: ${seconds(data.latency.p99_seconds)}`),
        tile("Servers", String(servers.all), servers.silent ? `${servers.silent} silent` : "all answer"),
        tile("Storage nodes", String(nodes.all), [nodes.silent && `${nodes.silent} silent`, nodes.full && `${nodes.full} full`].filter(Boolean).join(", ") || "all answer"),
        tile("Largest lag of a replica", count(data.largest_lag), "transactions"),
        tile("Logs on disk", bytes(data.log_bytes), data.days_to_full === null ? "growth not known yet" : `first disk full in ${days(data.days_to_full)}`),
      ),
    ),
    h(
      "div",
      { class: "two" },
      h("section", { class: "card" }, h("h2", {}, "Appends per second"), chart(data.history)),
      h("section", { class: "card" }, h("h2", {}, "What changed lately"), log(data.changes, "Nothing since the console observes.")),
    ),
    data.findings.length
      ? h("section", {}, h("h2", {}, "Findings"), data.findings.slice(0, 5).map((one) => finding(one)),
          data.findings.length > 5 ? h("p", {}, h("a", { href: "#/findings" }, `All ${data.findings.length} findings`)) : null)
      : null,
  ].filter(Boolean);
}

function verdict({ partitions, findings }) {
  const now = findings.filter((one) => one.severity !== "soon").length;
  if (partitions.closed) {
    const whose = partitions.closed === partitions.all ? "No partition takes" : `${count(partitions.closed)} of ${count(partitions.all)} partitions take`;
    return h("p", { class: "card verdict bad" }, `${whose} ${partitions.closed === partitions.all ? "writes" : "no writes"}.`);
  }
  if (partitions.unknown) {
    const whose = partitions.unknown === partitions.all ? "any partition takes" : `${count(partitions.unknown)} of ${count(partitions.all)} partitions take`;
    return h("p", { class: "card verdict warn" }, `It is not known whether ${whose} writes.`);
  }
  if (now) return h("p", { class: "card verdict warn" }, `All partitions take writes; ${now} ${now === 1 ? "thing needs" : "things need"} attention.`);
  return h("p", { class: "card verdict good" }, "All is well: every partition takes writes and every replica is current.");
}

function tile(name, value, sub) {
  return h("dl", { class: "card tile" }, h("dt", {}, name), h("dd", {}, value, h("small", {}, sub)));
}

function chart(history) {
  if (history.length < 2) return h("p", { class: "muted" }, "Two observations make a line.");
  const values = history.map((point) => point[1]);
  const top = Math.max(...values, 1);
  const [first, last] = [history[0][0], history[history.length - 1][0]];
  const x = (at) => (1000 * (at - first)) / Math.max(last - first, 1);
  const y = (value) => 96 - (92 * value) / top;
  const line = history.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const picture = svg(
    "svg",
    { class: "chart", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": `From ${rate(values[0])} to ${rate(values[values.length - 1])}, at most ${rate(top)}` },
    svg("path", { class: "area", d: `${line}L1000 100L0 100Z` }),
    svg("line", { x1: 0, y1: 99.5, x2: 1000, y2: 99.5 }),
    svg("path", { class: "line", d: line }),
  );
  return h("div", {}, picture, h("p", { class: "sub" }, `now ${rate(values[values.length - 1])}, at most ${rate(Math.max(...values))} in the last ${Math.max(1, Math.round((last - first) / 60))} min`));
}
