"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const rank = { pass: 0, mended: 0, deviates: 1, absent: 2, unreached: 3, error: 4, fail: 5 };

// make builds an element; texts are never markup.
function make(name, text, ...children) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  e.append(...children);
  return e;
}

function facts(list) {
  const dl = make("dl");
  for (const [name, text] of list) if (text) dl.append(make("dt", name), make("dd", text));
  return dl;
}

function show(key) {
  const result = data.results[key], rule = data.rules[result.rule] || { text: "A rule of another version of pvabi.", side: result.side, sources: [] };
  const run = data.runs[key.slice(0, key.indexOf(" "))];
  byId("detail-rule").textContent = result.rule;
  const body = byId("detail-body");
  const name = result.rule.slice(result.rule.indexOf("/") + 1);
  body.replaceChildren(
    make("p", rule.text),
    facts([
      ["verdict", result.verdict], ["side", rule.side], ["implementer", run.title],
      ["expected", result.expected], ["observed", result.observed], ["reason", result.reason],
      ["deviation", result.deviation], ["demands", (rule.want || []).join("; ")],
    ]),
    make("h3", "Sources"), make("ul", undefined, ...rule.sources.map((s) => make("li", s))),
    make("h3", "Again"), make("pre", run.again.replace("RULE", name)),
  );
  if (result.evidence && Object.keys(result.evidence).length > 0)
    body.append(make("h3", "Evidence"), make("pre", JSON.stringify(result.evidence, null, 1)));
  byId("detail").showModal();
}

// silent shows why a platform has no rule for a question.
function silent(key) {
  const s = data.silences[key];
  byId("detail-rule").textContent = key;
  byId("detail-body").replaceChildren(make("p", s.why), make("h3", "Sources"), make("ul", undefined, ...s.sources.map((t) => make("li", t))));
  byId("detail").showModal();
}

document.addEventListener("click", (e) => {
  const button = e.target.closest("[data-detail], [data-silent]");
  if (button?.dataset.detail) show(button.dataset.detail);
  else if (button) silent(button.dataset.silent);
});

// choice are the runs that one choice of a comparison stands for: a run, or all of one source.
const choice = (value) => Object.keys(data.runs).filter((id) => id === value || `from ${data.runs[id].from}` === value);

// comparison is which runs are held against each other, two or those of one target in two
// sources, and the targets that only one of the sources has; undefined where nothing is chosen.
function comparison() {
  const before = byId("before").value, after = byId("after").value;
  if (!before || !after || before === after) return undefined;
  const old = choice(before), young = choice(after);
  if (old.length === 1 && young.length === 1) return { pairs: [[old[0], young[0]]], alone: [] };
  const target = (id) => data.runs[id].target;
  const pairs = old.flatMap((o) => young.filter((y) => target(o) === target(y)).map((y) => [o, y]));
  const paired = pairs.map(([o]) => target(o));
  return { pairs, alone: [...old, ...young].map(target).filter((t) => !paired.includes(t)) };
}

// change says what became of a verdict, as pvabi diff does; "" for none.
function change(was, is) {
  if (was === is) return "";
  const worse = was && is ? rank[is] > rank[was] : was ? ["pass", "fail", "deviates", "mended"].includes(was) : ["fail", "error"].includes(is);
  return worse ? "worse" : "changed";
}

// filter hides rows, and columns and rows of a comparison that do not take part in it.
function filter() {
  const text = byId("text").value.toLowerCase(), platform = byId("platform").value;
  const side = byId("side").value, verdict = byId("verdict").value;
  const compared = comparison();
  let shown = 0;
  for (const section of document.querySelectorAll("main section")) {
    let left = 0;
    for (const body of section.querySelectorAll("tbody")) {
      let inBody = 0;
      for (const row of body.querySelectorAll("tr[data-side]")) {
        let visible = row.textContent.toLowerCase().includes(text) &&
          (!side || row.dataset.side === side) && (!verdict || row.dataset.verdicts.split(" ").includes(verdict));
        for (const e of [row, ...row.cells]) e.classList.remove("changed", "worse");
        if (compared) {
          const cell = (run) => row.querySelector(`td[data-run="${run}"]`);
          for (const [before, after] of compared.pairs) {
            const how = change(cell(before)?.dataset.verdict, cell(after)?.dataset.verdict);
            if (how) for (const e of [row, cell(after)]) e?.classList.add("changed", how);
          }
          visible &&= row.classList.contains("changed");
        }
        row.hidden = !visible;
        if (visible) inBody++;
      }
      body.hidden = inBody === 0;
      left += inBody;
    }
    for (const cell of section.querySelectorAll("[data-run]"))
      cell.hidden = Boolean(compared) && !compared.pairs.flat().includes(cell.dataset.run);
    section.hidden = left === 0 || Boolean(platform && section.dataset.platform && section.dataset.platform !== platform);
    if (!section.hidden) shown += left;
  }
  byId("count").textContent = (shown === 1 ? "1 row" : `${shown} rows`) + (compared?.alone.length ? `; in one only: ${compared.alone.join(", ")}` : "");
}
byId("filter").addEventListener("input", filter);
byId("filter").addEventListener("submit", (e) => e.preventDefault());
filter();
