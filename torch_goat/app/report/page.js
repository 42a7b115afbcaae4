"use strict";
// The neighbourhood viewer. All data are inserted as text, never as markup.
(async () => {
  const SHOWN = 200; // neighbours of one node
  const DRAWN = 16; // neighbours of the drawing and of the table of heads
  const ARCS = 10; // interactions of the drawing
  const MATCHES = 12; // of a search
  const OPEN = 20; // nodes with contributions, listed at once
  const SPLITS = ["none", "training", "validation", "test"];
  const $ = (id) => document.getElementById(id);
  const about = JSON.parse($("viewer-data").textContent);
  const arrays = await unpack(about);
  const names = text("names");
  const classes = text("classes");
  const columns = text("columns");
  const count = arrays.degree.length;
  const lists = about.heads.length ? about.heads.map((_, layer) => readList(layer)) : [readList(0)];
  const orders = about.heads.map((heads, layer) => readOrders(layer, heads));
  const place = new Map(Array.from(arrays.chosen, (node, number) => [node, number]));
  const state = { node: -1, layer: 0, head: 0 };

  async function unpack(from) {
    const bytes = Uint8Array.from(atob(from.packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    const kinds = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, int32: Int32Array, float32: Float32Array, float64: Float64Array };
    const found = {};
    for (const [name, [kind, start, length]] of Object.entries(from.arrays)) {
      found[name] = new kinds[kind](buffer, start, length);
    }
    return found;
  }

  function text(name) {
    return name in arrays ? JSON.parse(new TextDecoder().decode(arrays[name])) : null;
  }

  // Integers from one array per byte.
  function planes(name) {
    const values = new Uint32Array(arrays[`${name}.0`].length);
    for (let byte = 0; `${name}.${byte}` in arrays; byte++) {
      const part = arrays[`${name}.${byte}`];
      for (let at = 0; at < values.length; at++) values[at] += part[at] * 256 ** byte;
    }
    return values;
  }

  function pointers(counts) {
    const pointer = new Uint32Array(counts.length + 1);
    for (let node = 0; node < counts.length; node++) pointer[node + 1] = pointer[node] + counts[node];
    return pointer;
  }

  // The neighbours of every node in ascending order, from their differences.
  function readList(layer) {
    const pointer = pointers(arrays[`list${layer}.count`]);
    const source = planes(`list${layer}.step`);
    for (let node = 0; node < count; node++) {
      for (let at = pointer[node] + 1; at < pointer[node + 1]; at++) source[at] += source[at - 1];
    }
    return { pointer, source };
  }

  // For every head, the positions in that list in order, and the coefficients in 1/255 of the largest.
  function readOrders(layer, heads) {
    const counts = arrays[`order${layer}.count`];
    const pointer = pointers(counts);
    const rank = pointers(counts.map((size) => (size > 0 ? 1 : 0)));
    const read = [];
    for (let head = 0; head < heads; head++) {
      const level = arrays[`weight${layer}.${head}`];
      for (let at = 1; at < level.length; at++) level[at] += level[at - 1];
      read.push({ order: planes(`order${layer}.${head}`), level, largest: arrays[`largest${layer}.${head}`] });
    }
    return { pointer, rank, read };
  }

  const nameOf = (node) => (names ? names[node] : String(node));
  const classOf = (value) => (about.classification ? (value < 0 ? "unknown" : classes[value]) : number(value));
  function number(value) {
    return Number.isFinite(value) ? value.toLocaleString("en", { maximumSignificantDigits: about.digits }) : "unknown";
  }

  function make(tag, content, name) {
    const element = document.createElement(tag);
    if (content !== undefined) element.textContent = content;
    if (name) element.className = name;
    return element;
  }

  function draw(tag, attributes, content) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (content !== undefined) element.textContent = content;
    return element;
  }

  const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
  const signed = (value, digits) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
  const address = (node) => `#node=${encodeURIComponent(nameOf(node))}`;
  const tint = (name, share) => `color-mix(in srgb, var(${name}) ${Math.round(55 * share)}%, transparent)`;

  // The values of the columns at a node, as text.
  function valuesOf(node) {
    return columns.map(({ name, kind, categories }, at) => {
      const value = arrays[`value${at}`][node];
      if (Number.isNaN(value)) return [name, "missing"];
      if (kind === "category") return [name, categories[value]];
      const day = kind === "date" && Math.abs(value) < 1e6 ? new Date(Math.floor(value) * 864e5).toISOString().slice(0, 10) : null;
      return [name, day ?? String(Number(value.toPrecision(6)))];
    });
  }

  // The neighbours in the order of a head, with coefficients if there is an order, and their total number.
  function reading(layer, head, most) {
    const { node } = state;
    const { pointer, source } = lists[layer];
    if (!orders.length) {
      const all = pointer[node + 1] - pointer[node];
      return { all, rows: Array.from(source.subarray(pointer[node], pointer[node] + Math.min(all, most)), (one) => ({ node: one })) };
    }
    const { pointer: places, rank, read } = orders[layer];
    const { order, level, largest } = read[head];
    const all = places[node + 1] - places[node];
    const strongest = all ? Math.exp(-largest[rank[node]] / about.scale) : 0;
    const rows = [];
    for (let at = places[node]; at < places[node] + Math.min(all, most); at++) {
      rows.push({ node: source[pointer[node] + order[at]], share: level[at] / 255, weight: (strongest * level[at]) / 255 });
    }
    return { all, rows };
  }

  function effectsOf(node) {
    if (!place.has(node)) return null;
    const from = arrays["effect.ptr"][place.get(node)];
    const to = arrays["effect.ptr"][place.get(node) + 1];
    const found = new Map();
    for (let at = from; at < to; at++) found.set(arrays["effect.source"][at], arrays["effect.value"][at]);
    return found;
  }

  function pairsOf(node) {
    if (!place.has(node)) return [];
    const found = [];
    for (let at = arrays["pair.ptr"][place.get(node)]; at < arrays["pair.ptr"][place.get(node) + 1]; at++) {
      found.push({ first: arrays["pair.first"][at], second: arrays["pair.second"][at], value: arrays["pair.value"][at] });
    }
    return found;
  }

  function show() {
    const { node } = state;
    $("node").hidden = false;
    $("node-name").textContent = `Node ${nameOf(node)}`;
    showFacts(node);
    const { all, rows } = reading(state.layer, state.head, SHOWN);
    const effects = effectsOf(node);
    const strongest = effects ? Math.max(1e-12, ...Array.from(effects.values(), Math.abs)) : 1;
    const digits = Math.min(12, Math.max(0, 3 - Math.floor(Math.log10(strongest)))); // four significant digits of the strongest
    const scale = { effects, strongest, digits };
    showDrawing(rows.slice(0, DRAWN), all, scale);
    showHeads(rows.slice(0, DRAWN));
    const head = make("tr");
    head.append(make("th", "position", "number"), make("th", "neighbour"), make("th", about.classification ? "class" : "true value"));
    if (columns.length) head.append(make("th", "values", "values"));
    if (orders.length) head.append(make("th", "coefficient", "weight"));
    if (effects) head.append(make("th", `contribution (${about.unit})`, "effect"));
    for (const cell of head.children) cell.scope = "col";
    $("neighbors").tHead.replaceChildren(head);
    const body = document.createDocumentFragment();
    rows.forEach((row, index) => body.append(line(row, index, scale)));
    $("neighbors").tBodies[0].replaceChildren(body);
    $("shown").textContent = sentence(all, rows.length, effects);
    for (const link of $("explained").querySelectorAll("a")) {
      link.setAttribute("aria-current", String(Number(link.dataset.node) === node));
    }
  }

  // The node on the left, its neighbours in reading order from top to bottom, and interactions as arcs on the right.
  function showDrawing(rows, all, { effects, strongest, digits }) {
    $("drawing").hidden = !rows.length;
    if (!rows.length) return;
    const row = 26;
    const height = row * rows.length + 8;
    const middle = height / 2;
    const y = new Map(rows.map((one, index) => [one.node, row * (index + 0.5) + 4]));
    const svg = draw("svg", { viewBox: `0 0 440 ${height}`, role: "img", "aria-labelledby": "drawing-caption" });
    const largest = Math.max(1e-12, ...rows.map((one) => one.weight ?? 1));
    const lines = draw("g", { class: "edges" });
    const nodes = draw("g", {});
    for (const [index, one] of rows.entries()) {
      const at = y.get(one.node);
      const width = 0.8 + 6 * ((one.weight ?? 0) / largest);
      lines.append(draw("path", { d: `M118 ${at}C80 ${at} 90 ${middle} 46 ${middle}`, "stroke-width": width }));
      const value = effects?.get(one.node);
      const circle = draw("circle", { cx: 128, cy: at, r: 10, class: one.node === state.node ? "own" : "" });
      if (value !== undefined) circle.style.fill = tint(value < 0 ? "--against" : "--for", Math.abs(value) / strongest);
      nodes.append(circle, draw("text", { x: 128, y: at + 3.5, class: "place" }, index + 1));
      nodes.append(draw("text", { x: 146, y: at + 4 }, short(nameOf(one.node), effects ? 14 : 34)));
      if (value !== undefined) nodes.append(draw("text", { x: 322, y: at + 4, class: "value" }, signed(value, digits)));
    }
    nodes.append(draw("circle", { cx: 34, cy: middle, r: 13, class: "target" }));
    const pairs = pairsOf(state.node);
    const drawn = pairs.filter((one) => y.has(one.first) && y.has(one.second)).slice(0, ARCS);
    const most = Math.max(1e-12, ...drawn.map((one) => Math.abs(one.value)));
    for (const { first, second, value } of drawn) {
      const [from, to] = [y.get(first), y.get(second)];
      const reach = 334 + 8 + (92 * Math.abs(from - to)) / height;
      lines.append(
        draw("path", {
          d: `M330 ${from}C${reach} ${from} ${reach} ${to} 330 ${to}`,
          class: value < 0 ? "synergy" : "redundancy",
          "stroke-width": 0.8 + 3 * (Math.abs(value) / most),
        }),
      );
    }
    svg.append(lines, nodes);
    $("drawing").firstElementChild.replaceWith(svg);
    $("drawing-caption").textContent = caption(rows.length, all, effects, pairs, digits);
  }

  function caption(shown, all, effects, pairs, digits) {
    const many = shown < all ? `the first ${shown} of ${all.toLocaleString("en")} neighbours` : "its neighbours";
    const order = orders.length ? "in reading order from top to bottom; thicker lines: larger coefficients" : "without an order";
    let said = `Node ${nameOf(state.node)} and ${many}, ${order}.`;
    if (effects) said += ` Colours and numbers: contributions (${about.unit}).`;
    if (pairs.length) {
      const some = pairs.slice(0, 3).map((one) => `${nameOf(one.first)} and ${nameOf(one.second)} (${signed(one.value, digits)})`);
      said += ` Arcs: interactions, dashed where negative. The strongest: ${some.join(", ")}.`;
    }
    return said;
  }

  // The positions of some neighbours in the order of a head, without a list of all of them.
  function positions(layer, head, rows) {
    const { pointer, source } = lists[layer];
    const { pointer: places, read } = orders[layer];
    const { order, level } = read[head];
    const found = new Map(rows.map((row) => [row.node, null]));
    const start = places[state.node];
    for (let at = start; at < places[state.node + 1]; at++) {
      const one = source[pointer[state.node] + order[at]];
      if (found.has(one)) found.set(one, { position: at - start + 1, share: level[at] / 255 });
    }
    return found;
  }

  // The position of every neighbour in the order of every head.
  function showHeads(rows) {
    const all = orders.flatMap(({ read }, layer) => read.map((_, head) => ({ layer, head })));
    $("glance").parentElement.hidden = all.length < 2 || !rows.length;
    if ($("glance").parentElement.hidden) return;
    const head = make("tr");
    head.append(make("th", "neighbour"));
    const found = all.map(({ layer, head: number }) => {
      const cell = make("th", about.heads.length > 1 ? `${layer + 1}.${number + 1}` : number + 1, "number");
      if (layer === state.layer && number === state.head) cell.setAttribute("aria-current", "true");
      head.append(cell);
      return positions(layer, number, rows);
    });
    for (const cell of head.children) cell.scope = "col";
    $("glance").tHead.replaceChildren(head);
    const lines = rows.map((row) => {
      const made = make("tr");
      const name = make("th", short(nameOf(row.node), 24));
      name.scope = "row";
      made.append(name);
      for (const places of found) {
        const one = places.get(row.node);
        const cell = make("td", one ? one.position : "–", "number");
        if (one) cell.style.background = tint("--for", one.share);
        made.append(cell);
      }
      return made;
    });
    $("glance").tBodies[0].replaceChildren(...lines);
  }

  function sentence(all, shown, effects) {
    const size = arrays.degree[state.node];
    if (!all && size && about.included < count) {
      return `The ${size.toLocaleString("en")} neighbours of this node are not included in this page; include them with goat report --nodes.`;
    }
    const { pointer, source } = lists[state.layer];
    const own = source.subarray(pointer[state.node], pointer[state.node + 1]).includes(state.node) ? ", including the node itself" : "";
    const order = orders.length ? `in the order of this head${own}` : "unordered: the network has no GOAT layer";
    const part = shown < all ? `${all.toLocaleString("en")} neighbours, of which the first ${shown} are shown` : `${all.toLocaleString("en")} neighbours`;
    const without = effects ? "" : " Contributions were not computed for this node; compute them with goat report --nodes.";
    return `${part}, ${order}.${without}`;
  }

  function showFacts(node) {
    const facts = [
      ["neighbours", arrays.degree[node].toLocaleString("en")],
      ["split", SPLITS[arrays.split[node]]],
      [about.classification ? "true class" : "true value", classOf(arrays.truth[node])],
      ["predicted", classOf(arrays.predicted[node])],
    ];
    if (about.classification) facts.push(["probability", (arrays.probability[node] / 1000).toFixed(3)]);
    facts.push(...valuesOf(node));
    $("facts").replaceChildren(
      ...facts.map(([term, value]) => {
        const pair = make("div");
        pair.append(make("dt", term), make("dd", value));
        return pair;
      }),
    );
  }

  function line(row, index, { effects, strongest, digits }) {
    const made = make("tr");
    const name = make("td");
    if (row.node === state.node) {
      name.append(make("span", `${nameOf(row.node)} (the node itself)`, "own"));
    } else {
      const link = make("a", nameOf(row.node));
      link.href = address(row.node);
      name.append(link);
    }
    made.append(make("td", index + 1, "number"), name, make("td", classOf(arrays.truth[row.node])));
    if (columns.length) made.append(make("td", valuesOf(row.node).map(([term, value]) => `${term} ${value}`).join(", "), "values"));
    if (orders.length) {
      const cell = make("td", row.weight.toPrecision(2), "weight");
      cell.style.setProperty("--share", row.share);
      made.append(cell);
    }
    if (effects) {
      const value = effects.get(row.node);
      const cell = make("td", value === undefined ? "" : signed(value, digits), "effect");
      if (value !== undefined) cell.style.background = tint(value < 0 ? "--against" : "--for", Math.abs(value) / strongest);
      made.append(cell);
    }
    return made;
  }

  function choose(node) {
    state.node = node;
    $("search").value = nameOf(node);
    close();
    show();
    if (location.hash.startsWith("#node=") && location.hash !== address(node)) history.replaceState(null, "", address(node));
  }

  // The address of a node, such as report.html#node=17, opens it.
  function follow() {
    if (!location.hash.startsWith("#node=")) return false;
    let wanted;
    try {
      wanted = decodeURIComponent(location.hash.slice(6));
    } catch {
      return false; // not an address of this page
    }
    const node = names ? names.indexOf(wanted) : /^\d+$/.test(wanted) && Number(wanted) < count ? Number(wanted) : -1;
    if (node < 0) return false;
    choose(node);
    $("node-name").focus();
    $("node").scrollIntoView({ block: "nearest" });
    return true;
  }

  // The search box: arrow keys select, Enter accepts, Escape closes.
  let matches = [];
  let active = -1;

  function find(wanted) {
    const exact = [];
    const begins = [];
    const contains = [];
    const letters = wanted.toLowerCase();
    for (let node = 0; node < count; node++) {
      const name = nameOf(node).toLowerCase();
      if (name === letters) exact.push(node);
      else if (begins.length < MATCHES && name.startsWith(letters)) begins.push(node);
      else if (contains.length < MATCHES && name.includes(letters)) contains.push(node);
    }
    return [...exact, ...begins, ...contains].slice(0, MATCHES);
  }

  function suggest() {
    const wanted = $("search").value.trim();
    matches = wanted ? find(wanted) : [];
    active = matches.length ? 0 : -1;
    const items = matches.map((node, index) => {
      const item = make("li", nameOf(node));
      item.id = `match-${index}`;
      item.role = "option";
      item.addEventListener("mousedown", (event) => {
        event.preventDefault();
        choose(node);
      });
      return item;
    });
    if (wanted && !items.length) {
      items.push(make("li", "no such node"));
      items[0].role = "option";
      items[0].setAttribute("aria-disabled", "true");
    }
    $("matches").replaceChildren(...items);
    $("matches").hidden = !items.length;
    $("search").setAttribute("aria-expanded", String(items.length > 0));
    mark();
  }

  function mark() {
    matches.forEach((_, index) => $(`match-${index}`).setAttribute("aria-selected", String(index === active)));
    if (active >= 0) {
      $("search").setAttribute("aria-activedescendant", `match-${active}`);
      $(`match-${active}`).scrollIntoView({ block: "nearest" });
    } else {
      $("search").removeAttribute("aria-activedescendant");
    }
  }

  function close() {
    matches = [];
    active = -1;
    $("matches").hidden = true;
    $("search").setAttribute("aria-expanded", "false");
    $("search").removeAttribute("aria-activedescendant");
  }

  $("search").addEventListener("input", suggest);
  $("search").addEventListener("blur", close);
  $("search").addEventListener("focus", () => $("search").select());
  $("search").addEventListener("keydown", (event) => {
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !matches.length) suggest();
    else if (event.key === "ArrowDown") active = (active + 1) % matches.length;
    else if (event.key === "ArrowUp") active = (active - 1 + matches.length) % matches.length;
    else if (event.key === "Enter" && active >= 0) return choose(matches[active]);
    else if (event.key === "Escape") return close();
    else return;
    event.preventDefault();
    mark();
  });
  addEventListener("hashchange", follow);

  function offerHeads() {
    about.heads.forEach((heads, layer) => {
      for (let head = 0; head < heads; head++) {
        const label = make("label");
        const input = make("input");
        input.type = "radio";
        input.name = "head";
        input.value = `${layer}.${head}`;
        input.checked = layer === 0 && head === 0;
        input.addEventListener("change", () => {
          Object.assign(state, { layer, head });
          show();
        });
        label.append(input, make("span", (about.heads.length > 1 ? `layer ${layer + 1}, ` : "") + `head ${head + 1}`));
        $("heads").append(label);
      }
    });
    $("heads").hidden = !about.heads.length;
  }

  function offerExplained() {
    if (!arrays.chosen.length) return;
    const all = arrays.chosen.length;
    $("explained").firstElementChild.textContent = `${all} node${all > 1 ? "s" : ""} with contributions`;
    $("explained").open = all <= OPEN;
    for (const node of arrays.chosen) {
      const link = make("a", nameOf(node));
      link.href = address(node);
      link.dataset.node = node;
      $("explained").append(link, " ");
    }
    $("explained").hidden = false;
  }

  offerHeads();
  offerExplained();
  $("search").disabled = false;
  $("search").placeholder = "Name of a node, or part of it";
  if (!follow()) choose(about.first);
  $("viewer").dataset.ready = "yes";
})();
