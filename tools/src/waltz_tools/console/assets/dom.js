// Elements, numbers and times. Text is always set as text: nothing that a cluster says is ever read as markup.

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const NONE = "–";

export function count(value) {
  return value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en");
}

export function rate(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0";
  return value < 10 ? value.toFixed(1) : count(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let size = value;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(size) < 1024) return unit === "B" ? `${Math.round(size)} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} PiB`;
}

export function days(value) {
  if (value === null || value === undefined) return NONE;
  return value < 2 ? `${(value * 24).toFixed(1)} h` : `${count(value)} days`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

// A short time: 0.84 ms, 12 ms, 1.2 s.
export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 1) return `${value.toFixed(1)} s`;
  const ms = value * 1000;
  return ms < 10 ? `${ms.toFixed(2)} ms` : `${Math.round(ms)} ms`;
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export function pill(text, kind) {
  return h("span", { class: `pill ${kind || ""}` }, text);
}

// `waltz …` in backticks becomes code.
export function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

export function log(entries, empty) {
  if (!entries.length) return h("p", { class: "muted" }, empty);
  return h(
    "ol",
    { class: "log" },
    entries.map((one) =>
      h("li", {}, h("time", {}, clock(one.at)), h("span", { class: one.bad ? "bad" : "" }, one.text)),
    ),
  );
}

export function finding(one, open) {
  const kind = { stopped: ["no writes", "bad"], reduced: ["less protection", "warn"], soon: ["soon", ""] }[one.severity];
  return h(
    "article",
    { class: `card finding ${one.severity}` },
    h("p", { class: "what" }, pill(...kind), " ", one.finding),
    h("p", {}, "Next step: ", withCode(one.next_step)),
    h(
      "details",
      { open: open ? true : null },
      h("summary", {}, `Evidence (rule ${one.rule})`),
      h("ul", {}, one.evidence.map((line) => h("li", {}, line))),
    ),
  );
}

export const STANDING = {
  current: "good", behind: "warn", incomplete: "warn", "not started": "warn", unknown: "warn", unavailable: "bad", unreachable: "bad",
  "set back": "bad", refused: "bad", "not assigned on the node": "bad", "ahead of ZooKeeper": "bad",
};

// One mark for each replica; its words are there for those who cannot see it.
export function dots(replicas) {
  const words = replicas.map(([node, standing, lag]) => `${node}: ${standing}${lag ? `, ${count(lag)} behind` : ""}`);
  return h(
    "span",
    { class: "dots", role: "img", "aria-label": words.join("; ") || "no replica", title: words.join("\n") },
    replicas.map(([, standing]) => h("span", { class: STANDING[standing] === "good" ? "" : STANDING[standing] })),
  );
}

export function copyButton(text) {
  const button = h("button", {
    type: "button",
    onclick: async () => {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    },
  }, "Copy");
  return button;
}
