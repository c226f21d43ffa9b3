// Transactions of a partition: pages of them, one of them in every form, and what comes in.

import { ask, post, whyRefused } from "./api.js";
import { bytes, copyButton, count, h, pill } from "./dom.js";
import { Table } from "./table.js";

const MAX_FOLLOWED = 500;

export function records(query, about) {
  if (!about.allow_data) {
    return { path: "about", element: h("p", { class: "card" }, "This console shows no data: it was started without --allow-data."), update: () => {} };
  }
  return new Records(query, about);
}

class Records {
  constructor(query, about) {
    this.path = null; // asks when a reader asks, not with every observation
    this.rows = [];
    this.stream = null;
    this.rested = null; // continues what is followed, once the tab is shown again
    this.field = (id, label, type, value, className) => {
      this[id] = h("input", { id, type, value, class: className || "short", min: type === "number" ? 0 : null });
      return h("label", { for: id }, label, this[id]);
    };
    this.table = new Table({
      caption: "Records",
      keyOf: (row) => `${row.partition}/${row.id}`,
      empty: "No transaction here.",
      columns: [
        { key: "id", label: "Transaction", num: true, value: (row) => row.id, cell: (row) => h("button", { type: "button", class: "link", onclick: () => this.open(row) }, String(row.id)) },
        { key: "header", label: "Header", num: true, value: (row) => row.header },
        { key: "client", label: "Client", num: true, value: (row) => row.client },
        { key: "size", label: "Size", num: true, value: (row) => row.size, cell: (row) => bytes(row.size) },
        { key: "kind", label: "Form", value: (row) => row.kind, cell: (row) => pill(row.kind) },
        { key: "line", label: "Payload", value: (row) => row.line, cell: (row) => h("span", { class: "line" }, row.line), class: "wide" },
      ],
    });
    this.table.descending = true;
    this.table.heads[0].setAttribute("aria-sort", "descending");
    this.detail = h("section", { class: "hidden", "aria-live": "polite" });
    this.says = h("p", { class: "sub", role: "status" });
    this.line = h("code", {});
    this.element = this.make(query, about);
    this.load({});
  }

  make(query, about) {
    const form = h(
      "form",
      { class: "tools", onsubmit: (event) => { event.preventDefault(); this.load({ from: this.from.value }); } },
      this.field("partition", "Partition", "number", query.get("partition") || "0"),
      this.field("from", "From transaction", "number", query.get("from") || ""),
      this.field("header", "Header (VALUE or VALUE/MASK)", "text", query.get("header") || ""),
      this.field("client", "Client", "number", query.get("client") || ""),
      h("button", { type: "submit", class: "primary" }, "Show"),
      (this.older = h("button", { type: "button", onclick: () => this.load({ before: this.found.older }) }, "Older")),
      (this.newer = h("button", { type: "button", onclick: () => this.load({ from: this.found.newer }) }, "Newer")),
      h("button", { type: "button", onclick: () => this.load({}) }, "End of the log"),
      (this.live = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.follow() }, "Follow")),
    );
    return h(
      "div",
      {},
      form,
      h("section", {}, h("p", { class: "sub" }, "The same in a shell:"), h("div", { class: "command" }, this.line, copyButton(() => this.line.textContent))),
      this.says,
      this.detail,
      this.table.element,
      about.allow_append ? this.appender() : null,
    );
  }

  update() {}

  close() {
    if (this.stream) this.stream.close();
    this.stream = null;
    this.rested = null;
  }

  rest() {
    if (!this.stream) return;
    const again = this.again;
    this.close();
    this.rested = again;
  }

  wake() {
    if (this.rested) this.rested();
  }

  async load(wanted) {
    this.unfollow();
    const query = new URLSearchParams({ partition: this.partition.value || "0" });
    if (this.header.value) query.set("header", this.header.value);
    if (this.client.value) query.set("client", this.client.value);
    for (const [name, value] of Object.entries(wanted)) if (value !== "" && value !== null && value !== undefined) query.set(name, value);
    this.says.textContent = "Reading…";
    try {
      const found = await ask(`records?${query}`);
      this.found = found;
      this.rows = found.rows;
      this.table.show(this.rows, `Partition ${found.partition} ends at transaction ${count(found.end)}`);
      const searched = found.searched ? `Transactions ${count(found.searched[0])} to ${count(found.searched[1])} were looked at.` : "";
      const full = found.full ? ` These are ${count(found.rows.length)} of them: more payload is not read for one page.` : "";
      this.says.textContent = found.end < 0 ? "The log is empty." : searched + full;
      this.line.textContent = found.command;
      this.older.disabled = found.older === null;
      this.newer.disabled = found.newer === null;
    } catch (error) {
      this.says.textContent = error.message;
    }
  }

  follow() {
    if (this.stream || this.rested) return this.unfollow();
    const query = new URLSearchParams({ partition: this.partition.value || "0" });
    if (this.header.value) query.set("header", this.header.value);
    if (this.client.value) query.set("client", this.client.value);
    this.live.setAttribute("aria-pressed", "true");
    this.live.textContent = "Stop following";
    this.says.textContent = "Waiting for what is appended…";
    this.followed(query, { out: 0, missed: 0 }, false);
  }

  // One stream after the other: `seen` of the query is the last transaction that the one before knew of.
  followed(query, lacked, again) {
    const path = `follow?${query}`;
    const stream = new EventSource(`/api/${path}`);
    this.stream = stream;
    this.rested = null;
    let { out, missed } = lacked;
    let lost = again;
    let position = query.get("seen");
    this.again = () => {
      if (position !== null) query.set("seen", position);
      this.followed(query, { out, missed }, true);
    };
    const state = () => {
      const lacks = [];
      if (out) lacks.push(`${count(out)} came too fast to be shown`);
      if (missed) lacks.push(`${count(missed)} came while there was no connection, and were not looked at`);
      this.says.textContent = lacks.length ? `Live; ${lacks.join("; ")}.` : "Live.";
    };
    stream.addEventListener("position", (event) => {
      position = event.lastEventId;
      missed += JSON.parse(event.data).missed || 0;
      if (lost || missed) state();
      lost = false;
    });
    stream.addEventListener("records", (event) => {
      position = event.lastEventId;
      const { rows, left_out } = JSON.parse(event.data);
      out += left_out;
      this.rows = [...rows, ...this.rows].slice(0, MAX_FOLLOWED);
      this.table.show(this.rows, `Partition ${this.partition.value}, live`);
      state();
    });
    stream.addEventListener("failed", (event) => {
      this.unfollow();
      this.says.textContent = JSON.parse(event.data).error;
    });
    stream.onerror = async () => {
      lost = true;
      this.says.textContent = "No connection to the console; trying again…";
      if (stream.readyState !== EventSource.CLOSED) return; // a browser repeats on its own, with the last position
      const reason = await whyRefused(path);
      if (this.stream !== stream) return; // somebody has stopped it meanwhile
      this.unfollow();
      this.says.textContent = reason || "The connection was refused: follow again.";
    };
  }

  unfollow() {
    this.close();
    this.live.setAttribute("aria-pressed", "false");
    this.live.textContent = "Follow";
  }

  async open(row) {
    try {
      this.showOne(await ask(`record?partition=${row.partition}&id=${row.id}`));
    } catch (error) {
      this.says.textContent = error.message;
    }
  }

  showOne(one) {
    const forms = ["json", "msgpack", "text", "hex"].filter((name) => one[name] !== null);
    const body = h("pre", { tabindex: "0" });
    const choose = (name) => {
      body.textContent = one[name];
      body.className = name === "hex" ? "hex" : "";
      for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.dataset.name === name));
    };
    const tabs = forms.map((name) => h("button", { type: "button", "data-name": name, onclick: () => choose(name) }, name));
    this.detail.replaceChildren(
      h("div", { class: "card" },
        h("h2", { tabindex: "-1" }, `Transaction ${one.id} of partition ${one.partition}`),
        h("p", { class: "sub" }, `header ${one.header}, client ${one.client}, ${bytes(one.size)}${one.cut ? ", of which the beginning is shown" : ""}${one.pretty_cut ? "; with line breaks it is long, and cut after 256 KiB: text or hex show more" : ""}`),
        h("div", { class: "tabs", role: "group", "aria-label": "Form" }, tabs, copyButton(() => body.textContent),
          h("button", { type: "button", onclick: () => this.detail.classList.add("hidden") }, "Close")),
        body),
    );
    this.detail.classList.remove("hidden");
    choose(forms[0]);
    this.detail.querySelector("h2").focus();
  }

  appender() {
    const text = h("textarea", { id: "text", rows: 3, cols: 60 });
    const number = h("input", { id: "with", type: "number", value: "0", class: "short" });
    const says = h("p", { class: "sub", role: "status" });
    return h(
      "form",
      {
        class: "card", "aria-label": "Append",
        onsubmit: async (event) => {
          event.preventDefault();
          try {
            const done = await post("append", { partition: Number(this.partition.value || 0), data: text.value, header: Number(number.value || 0) });
            says.textContent = `Committed as transaction ${done.transaction} of partition ${done.partition}.`;
          } catch (error) {
            says.textContent = error.message;
          }
        },
      },
      h("h2", {}, "Append to this partition"),
      h("div", { class: "tools" }, h("label", { for: "text" }, "Payload", text), h("label", { for: "with" }, "Header", number), h("button", { type: "submit", class: "primary" }, "Append")),
      says,
    );
  }
}
