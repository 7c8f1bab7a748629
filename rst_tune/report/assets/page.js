"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  let data = JSON.parse($("data").textContent);
  const root = document.documentElement;
  const PAGE = 50;
  const POLL = 2000; // milliseconds; the server analyses less often
  const pause = (time) => new Promise((go) => setTimeout(go, time));

  // ---- theme: that of the system until the button is pressed; nothing is stored
  const system = matchMedia("(prefers-color-scheme: dark)");
  const variable = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const isDark = () => root.dataset.theme === "dark";
  function setTheme(dark) {
    root.dataset.theme = dark ? "dark" : "light";
    $("theme").textContent = dark ? "Light" : "Dark";
    $("theme").setAttribute("aria-pressed", String(dark));
    for (const div of document.querySelectorAll(".plot.drawn")) Plotly.relayout(div, colours(div.layout));
  }
  system.addEventListener("change", (event) => setTheme(event.matches));
  $("theme").addEventListener("click", () => setTheme(!isDark()));

  // ---- figures
  function colours(layout) {
    const [ink, rule, card, soft] = ["--ink", "--rule", "--card", "--soft"].map(variable);
    const change = { "font.color": ink, "hoverlabel.bgcolor": card, "hoverlabel.bordercolor": rule, "hoverlabel.font.color": ink,
      "modebar.bgcolor": "rgba(0,0,0,0)", "modebar.color": rule, "modebar.activecolor": soft };
    for (const axis of Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))) {
      change[axis + ".gridcolor"] = rule;
      change[axis + ".linecolor"] = rule;
    }
    return change;
  }
  async function unpackPlotly() {
    const bytes = Uint8Array.from(atob($("plotly").textContent), (c) => c.charCodeAt(0));
    const code = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    const script = document.createElement("script");
    script.textContent = code;
    document.head.append(script);
    $("plotly").remove();
  }
  async function draw(div) {
    const figure = data.figures[div.dataset.figure];
    if (innerWidth <= 600) narrow(figure);
    figure.layout.uirevision = "kept"; // an update keeps the zoom
    const bar = innerWidth > 600 && figure.layout.height > 200;
    const config = { responsive: true, displaylogo: false, displayModeBar: bar ? "hover" : false, modeBarButtons: [["toImage", "resetScale2d"]] };
    await Plotly.react(div, figure.data, figure.layout, config);
    await Plotly.relayout(div, colours(figure.layout));
    if (!div.classList.contains("drawn")) div.on("plotly_click", (event) => showConfig(event.points[0].customdata));
    div.classList.add("drawn");
  }
  function narrow(figure) {
    figure.layout.font = { ...figure.layout.font, size: 11 };
    figure.layout.dragmode = false; // a touch scrolls the page
  }
  async function drawAll() {
    if ($("plotly") && document.querySelector(".plot")) await unpackPlotly();
    for (const div of document.querySelectorAll(".plot")) {
      await draw(div);
      await pause(0);
    }
    root.dataset.ready = "yes";
  }

  // ---- printing: light theme, figures as wide as the paper
  let before = false;
  addEventListener("beforeprint", () => {
    before = isDark();
    setTheme(false);
    for (const div of document.querySelectorAll(".plot.drawn")) {
      const width = div.closest(".grid") ? 220 : 690;
      Plotly.relayout(div, { width });
    }
  });
  addEventListener("afterprint", () => {
    setTheme(before);
    for (const div of document.querySelectorAll(".plot.drawn")) Plotly.relayout(div, { width: null, autosize: true });
  });

  // ---- trials: the data are columns; a column of repeated values has the distinct values and an index per row
  let columns = {};
  let rowOf = new Map();
  function readColumns() {
    columns = {};
    for (const [name, column] of Object.entries(data.trials || {})) {
      columns[name] = Array.isArray(column) ? column : column.at.map((i) => column.values[i]);
    }
    rowOf = new Map((columns.key || []).map((key, i) => [key, i]));
  }
  const parameters = (schedule) => Object.entries(schedule || {}).filter(([name]) => name !== "family")
    .map(([name, value]) => `${name}=${typeof value === "number" ? short(value) : JSON.stringify(value)}`).join(", ");
  const short = (value, digits = 4) => value === null || value === undefined ? "–" : typeof value === "number" ? String(Number(value.toPrecision(digits))) : String(value);
  const fixed = (value) => typeof value !== "number" ? "–" : data.metric.percent ? value.toFixed(2) : short(value);

  function yamlOf(i) {
    const names = ["schedule", "gamma_gnr", "rule", "rule_options", "rho", "policy", "policy_options", "cap"];
    const lines = names.filter((name) => columns[name][i] !== null).map((name) => `${name}: ${JSON.stringify(columns[name][i])}`);
    if (columns.horizon[i] !== 1) lines.push(`horizon: ${JSON.stringify(columns.horizon[i])}  # × the recipe's epochs`);
    return [`# trial ${columns.number[i]}, seed ${columns.seed[i]}, ${columns.epochs[i]} epochs`, ...lines, ""].join("\n");
  }
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // a sandboxed frame has no clipboard; execCommand needs no permission
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      if (!done) prompt("Copy this:", text);
    }
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    await copy(yamlOf(rowOf.get(button.dataset.key)));
    const label = button.textContent;
    button.textContent = "Copied";
    $("say").textContent = "The configuration was copied as YAML.";
    setTimeout(() => { button.textContent = label; }, 1500);
  });

  // name, title, numeric, shown text, whether it is shown only where its values differ; sorting uses the raw value
  const times = (value) => value === null ? "–" : short(value, 3) + " ×";
  const COLUMNS = [
    ["number", "#", true, (i) => columns.number[i]],
    ["status", "status", false, (i) => columns.status[i]],
    ["family", "schedule", false, (i) => columns.family[i]],
    ["parameters", "parameters", false, (i) => columns.parameters[i]],
    ["compute", data.cost || "compute", true, (i) => times(columns.compute[i]), "horizon"],
    ["horizon", "length", true, (i) => times(columns.horizon[i]), "horizon"],
    ["extra", "extra", true, (i) => columns.extra[i] === null ? "–" : short(100 * columns.extra[i], 3) + " %"],
    ["gamma_gnr", "γ_gnr", true, (i) => short(columns.gamma_gnr[i], 3)],
    ["gamma_rst", "γ_rst", true, (i) => short(columns.gamma_rst[i], 3)],
    ["rho", "ρ", true, (i) => short(columns.rho[i], 3), "rho"],
    ["rule", "rule", false, (i) => columns.rule[i], "rule"],
    ["policy", "policy", false, (i) => columns.policy[i] || "coin", "policy"],
    ["seed", "seed", true, (i) => columns.seed[i]],
    ["epochs", "epochs", true, (i) => columns.epochs[i], "horizon"],
    ["error", data.metric?.title, true, (i) => fixed(columns.error[i])],
    ["test", "test", true, (i) => fixed(columns.test[i]), "test"],
    ["seconds", "seconds", true, (i) => short(columns.seconds[i], 3)],
    ["verdict", "front", false, (i) => columns.verdict[i] || "", "verdict"],
  ];
  let shown = [];
  let sorting = { name: "error", up: data.metric?.up ?? true };
  let visible = PAGE;

  function setUpTable() {
    if (!$("rows")) return;
    for (const id of ["filter", "only", "front-only"]) $(id).addEventListener("input", () => { visible = PAGE; fill(); });
    $("more").addEventListener("click", () => { visible += 4 * PAGE; fill(); });
    refreshTable();
  }
  function refreshTable() {
    columns.parameters = columns.schedule.map(parameters);
    columns.words = columns.key.map((key, i) => ["#" + columns.number[i], key, ...["status", "role", "family", "rule", "policy", "parameters", "verdict"].map((name) => columns[name][i])].join(" ").toLowerCase());
    const only = $("only").value;
    const states = ["all", ...new Set(columns.status)].map((name) => new Option(name, name === "all" ? "" : name));
    $("only").replaceChildren(...states);
    $("only").value = only;
    shown = COLUMNS.filter(([, , , , varied]) => !varied || new Set(columns[varied]).size > 1);
    $("heads").replaceChildren(...shown.map(headElement), headElement(["", "", false]));
    fill();
  }
  function headElement([name, title, numeric]) {
    const th = document.createElement("th");
    th.scope = "col";
    th.className = numeric ? "n" : name ? "" : "act";
    if (!name) return th;
    const button = document.createElement("button");
    th.dataset.column = name;
    button.type = "button";
    button.textContent = title;
    button.addEventListener("click", () => { sorting = { name, up: sorting.name === name ? !sorting.up : true }; fill(); });
    th.append(button);
    return th;
  }
  // "error<4" compares a column; any other word must occur in the row
  function test(word) {
    const parts = word.match(/^([a-z_][a-z_\d]*)(<=|>=|<|>|=)(-?[\d.]+)$/);
    const values = parts && columns[parts[1] === data.metric?.name ? "error" : parts[1]];
    if (!values) return (i) => columns.words[i].includes(word);
    const limit = Number(parts[3]);
    const compare = { "<": (a) => a < limit, ">": (a) => a > limit, "<=": (a) => a <= limit, ">=": (a) => a >= limit, "=": (a) => a === limit }[parts[2]];
    return (i) => values[i] !== null && compare(values[i]);
  }
  function chosen() {
    const tests = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean).map(test);
    if ($("only").value) tests.push((i) => columns.status[i] === $("only").value);
    if ($("front-only").checked) tests.push((i) => Boolean(columns.verdict[i]));
    const rows = columns.key.map((_, i) => i).filter((i) => tests.every((ok) => ok(i)));
    const values = columns[sorting.name], sign = sorting.up ? 1 : -1;
    const missing = (value) => value === null || value === undefined || value === "";
    return rows.sort((a, b) => missing(values[a]) - missing(values[b]) || sign * order(values[a], values[b]) || a - b);
  }
  const order = (a, b) => a < b ? -1 : a > b ? 1 : 0;
  function fill() {
    const rows = chosen();
    $("rows").replaceChildren(...rows.slice(0, visible).map(rowElement));
    for (const th of $("heads").children) {
      if (th.dataset.column === sorting.name) th.setAttribute("aria-sort", sorting.up ? "ascending" : "descending");
      else th.removeAttribute("aria-sort");
    }
    const many = `${rows.length} of ${columns.key.length} trials`;
    $("count").textContent = rows.length > visible ? `${many}; the first ${visible} are shown` : many;
    $("more").hidden = rows.length <= visible;
  }
  function rowElement(i) {
    const tr = document.createElement("tr");
    for (const [name, , numeric, show] of shown) {
      const td = tr.insertCell();
      td.textContent = show(i);
      if (numeric) td.className = "n";
      if (name === "parameters") td.className = "wide";
    }
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.dataset.key = columns.key[i];
    button.textContent = "YAML";
    button.setAttribute("aria-label", `Copy trial ${columns.number[i]} as YAML`);
    const cell = tr.insertCell();
    cell.className = "act";
    cell.append(button);
    return tr;
  }
  function showConfig(config) {
    if (typeof config !== "string" || !$("filter")) return;
    $("filter").value = config;
    fill();
    $("trials").scrollIntoView();
  }

  // ---- updates of a page that `rst-tune watch` serves: a section whose HTML changed is replaced, figures are kept
  const sources = new Map([...$("main").children].map((section) => [section.id, section.outerHTML]));
  function replaceSections(html) {
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    const wanted = [...fresh.content.children];
    for (const section of [...$("main").children]) if (!wanted.some(({ id }) => id === section.id)) section.remove();
    wanted.forEach((section, i) => {
      const old = $(section.id), source = section.outerHTML;
      if (old && sources.get(section.id) === source) return;
      sources.set(section.id, source);
      if (!old) return $("main").insertBefore(section, $("main").children[i] || null);
      for (const div of section.querySelectorAll(".plot")) {
        const drawn = old.querySelector(`[data-figure="${div.dataset.figure}"].drawn`);
        if (!drawn) continue;
        drawn.style.height = div.style.height;
        div.replaceWith(drawn);
      }
      section.querySelectorAll("details").forEach((part, k) => { part.open = old.querySelectorAll("details")[k]?.open ?? part.open; });
      old.replaceWith(section);
    });
  }
  async function update(next) {
    const table = $("rows");
    data = next;
    $("nav").innerHTML = next.nav;
    replaceSections(next.sections);
    readColumns();
    if ($("rows") === table && table) refreshTable();
    else setUpTable();
    await drawAll();
  }
  async function follow() {
    for (let done = false; !done; ) {
      await pause(POLL);
      try {
        const answer = await fetch(`state?since=${data.version}`);
        if (answer.status === 200) await update(await answer.json());
        done = data.done || false;
        const stopped = !done && answer.headers.get("X-Search-Running") === "no";
        $("live").className = stopped ? "lost" : "";
        $("live").textContent = done ? "finished" : stopped ? "not running: the same command resumes it" : "live";
      } catch { // the server is gone, or not there for a moment
        $("live").className = "lost";
        $("live").textContent = "not connected";
      }
    }
  }

  setTheme(system.matches);
  readColumns();
  setUpTable();
  drawAll().then(() => $("live") && follow()).catch((problem) => {
    root.dataset.ready = "no";
    for (const div of document.querySelectorAll(".plot:not(.drawn)")) {
      div.className = "missing";
      div.textContent = "This figure could not be drawn: " + problem.message;
    }
  });
})();
