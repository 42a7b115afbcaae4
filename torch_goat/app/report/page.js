"use strict";
// The neighbourhood viewer. All data are inserted as text, never as markup.
(async () => {
  const SHOWN = 200; // neighbours of one node
  const MATCHES = 12; // of a search
  const OPEN = 20; // nodes with contributions, listed at once
  const SPLITS = ["none", "training", "validation", "test"];
  const $ = (id) => document.getElementById(id);
  const about = JSON.parse($("viewer-data").textContent);
  const arrays = await unpack(about);
  const names = text("names");
  const classes = text("classes");
  const count = arrays.degree.length;
  const lists = about.heads.length ? about.heads.map((_, layer) => readList(layer)) : [readList(0)];
  const orders = about.heads.map((heads, layer) => readOrders(layer, heads));
  const place = new Map(Array.from(arrays.chosen, (node, number) => [node, number]));
  const state = { node: -1, layer: 0, head: 0 };

  async function unpack(from) {
    const bytes = Uint8Array.from(atob(from.packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    const kinds = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, int32: Int32Array, float32: Float32Array };
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
    return Number.isFinite(value) ? Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 }) : "unknown";
  }

  function make(tag, content, name) {
    const element = document.createElement(tag);
    if (content !== undefined) element.textContent = content;
    if (name) element.className = name;
    return element;
  }

  // The neighbours to show, with coefficients if there is an order, and their total number.
  function neighborhood() {
    const { node, layer, head } = state;
    const { pointer, source } = lists[layer];
    if (!orders.length) {
      const all = pointer[node + 1] - pointer[node];
      return { all, rows: Array.from(source.subarray(pointer[node], pointer[node] + Math.min(all, SHOWN)), (one) => ({ node: one })) };
    }
    const { pointer: places, rank, read } = orders[layer];
    const { order, level, largest } = read[head];
    const all = places[node + 1] - places[node];
    const most = all ? Math.exp(-largest[rank[node]] / about.scale) : 0;
    const rows = [];
    for (let at = places[node]; at < places[node] + Math.min(all, SHOWN); at++) {
      rows.push({ node: source[pointer[node] + order[at]], share: level[at] / 255, weight: (most * level[at]) / 255 });
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

  function show() {
    const { node } = state;
    $("node").hidden = false;
    $("node-name").textContent = `Node ${nameOf(node)}`;
    showFacts(node);
    const { all, rows } = neighborhood();
    const effects = effectsOf(node);
    const head = make("tr");
    head.append(make("th", "position", "number"), make("th", "neighbour"), make("th", about.classification ? "class" : "true value"));
    if (orders.length) head.append(make("th", "coefficient", "weight"));
    if (effects) head.append(make("th", `contribution (${about.unit})`, "effect"));
    for (const cell of head.children) cell.scope = "col";
    $("neighbors").tHead.replaceChildren(head);
    const body = document.createDocumentFragment();
    const strongest = effects ? Math.max(1e-12, ...Array.from(effects.values(), Math.abs)) : 1;
    const digits = Math.min(12, Math.max(0, 3 - Math.floor(Math.log10(strongest)))); // four significant digits of the strongest
    rows.forEach((row, index) => body.append(line(row, index, effects, strongest, digits)));
    $("neighbors").tBodies[0].replaceChildren(body);
    $("shown").textContent = sentence(all, rows.length, effects);
    for (const button of $("explained").querySelectorAll("button")) {
      button.setAttribute("aria-current", String(Number(button.dataset.node) === node));
    }
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
    $("facts").replaceChildren(
      ...facts.map(([term, value]) => {
        const pair = make("div");
        pair.append(make("dt", term), make("dd", value));
        return pair;
      }),
    );
  }

  function line(row, index, effects, strongest, digits) {
    const made = make("tr");
    const name = make("td");
    if (row.node === state.node) {
      name.append(make("span", `${nameOf(row.node)} (the node itself)`, "own"));
    } else {
      const link = make("a", nameOf(row.node));
      link.href = "#node";
      link.dataset.node = row.node;
      name.append(link);
    }
    made.append(make("td", index + 1, "number"), name, make("td", classOf(arrays.truth[row.node])));
    if (orders.length) {
      const cell = make("td", row.weight.toPrecision(2), "weight");
      cell.style.setProperty("--share", row.share);
      made.append(cell);
    }
    if (effects) {
      const value = effects.get(row.node);
      const cell = make("td", value === undefined ? "" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`, "effect");
      if (value !== undefined) {
        const color = value < 0 ? "--against" : "--for";
        cell.style.background = `color-mix(in srgb, var(${color}) ${Math.round((55 * Math.abs(value)) / strongest)}%, transparent)`;
      }
      made.append(cell);
    }
    return made;
  }

  function choose(node, focus) {
    state.node = node;
    $("search").value = nameOf(node);
    close();
    show();
    if (focus) $("node-name").focus();
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
  for (const id of ["neighbors", "explained"]) {
    $(id).addEventListener("click", (event) => {
      const chosen = event.target.closest("[data-node]");
      if (!chosen) return;
      event.preventDefault();
      choose(Number(chosen.dataset.node), true);
    });
  }

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
      const button = make("button", nameOf(node));
      button.type = "button";
      button.dataset.node = node;
      $("explained").append(button, " ");
    }
    $("explained").hidden = false;
  }

  offerHeads();
  offerExplained();
  $("search").disabled = false;
  $("search").placeholder = "Name of a node, or part of it";
  choose(about.first);
  $("viewer").dataset.ready = "yes";
})();
