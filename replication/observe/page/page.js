// Draws the updates of /stream (replication/observe/page/board.py); Kafka's rules are not repeated here.
window.faults = [];
const faulty = (message) => {
  window.faults.push(message);
  document.documentElement.dataset.faults = window.faults.join("; ");
};
window.addEventListener("error", (event) => faulty(event.message));
window.addEventListener("unhandledrejection", (event) => faulty(String(event.reason)));

const byId = (id) => document.getElementById(id);
const CONTROLLER = 0;
const WINDOW = 60; // offsets of a drawn log; more if a replica or the HW is further back
const MOST_CELLS = 120; // more records than that are drawn as leader epochs
const KEPT_EVENTS = 500;
const KINDS = { fault: "faults", decision: "decisions", cut: "truncations", news: "other news" };

const state = { cluster: null, order: [], partitions: new Map(), now: 0, heardAt: 0 };
let chosen = null; // a partition's name
const shownKinds = new Set(Object.keys(KINDS));

// Small tools.

// Unchanged elements are not touched, so that focus, selection and open menus stay.
function put(element, key, value) {
  if (element[key] !== value) element[key] = value;
}

function flash(element) {
  element.classList.remove("changed");
  void element.offsetWidth;
  element.classList.add("changed");
}

function putText(element, value, marks = false) {
  if (element.textContent === value) return;
  const isNews = marks && element.textContent !== "";
  element.textContent = value;
  if (isNews) flash(element);
}

const count = (number) => (number === null || number === undefined ? "–" : number.toLocaleString("en"));
const some = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
const rolesOf = (id) => state.cluster.roles[id] ?? ["broker"];
const votes = (id) => rolesOf(id).includes("controller");
const serves = (id) => rolesOf(id).includes("broker");
const nodeName = (id) => (serves(id) ? `b${id}` : id === CONTROLLER ? "controller" : `controller ${id}`);
const nameOf = (partition) => `${partition.topic}-${partition.partition}`;
// A follower is behind for a moment with each record: what has not lasted for so long is not shown.
const LASTS_MS = 1000;
const began = new Map(); // what is going on -> when this page saw it first

function lasts(what, isGoing, sinceMs = 0) {
  if (!isGoing) { began.delete(what); return false; }
  if (!began.has(what)) began.set(what, performance.now());
  return Math.max(sinceMs, performance.now() - began.get(what)) >= LASTS_MS;
}

const sinceMs = (moment) => Math.max(0, state.now + (performance.now() - state.heardAt) - moment);
const seconds = (ms) => (ms < 10000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`);
const clockTime = (ms) => {
  const at = new Date(ms);
  return `${at.toTimeString().slice(0, 8)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
};

const isOffline = (partition) => partition.leader === null;
const isUnder = (partition) => partition.isr.length < partition.replicas.length;
const isUnderMin = (partition) => partition.min_isr !== null && partition.isr.length < partition.min_isr;
const inTrouble = (partition) => isOffline(partition) || isUnder(partition) || isUnderMin(partition);

// Nodes.

const cards = new Map();

function makeCard(id) {
  const name = nodeName(id);
  const card = {
    root: html("article", { className: "card", "aria-label": name }),
    roles: html("span", { className: "roles", title: "Its roles (process.roles)" }),
    status: html("span", { className: "status" }),
    facts: html("p", { className: "facts" }),
    place: html("p", { className: "place", title: "Its place in the quorum, and its copy of the metadata log" }),
    trouble: html("p", { className: "bad" }),
    life: html("button", { type: "button" }),
    pulse: html("button", { type: "button" }),
    link: html("button", { type: "button", textContent: "Cut off", className: "hurts" }),
    from: html("select", { title: "The nodes to cut it off from" }),
  };
  card.life.addEventListener("click", () => act(card.life.dataset.act, id));
  card.pulse.addEventListener("click", () => act(card.pulse.dataset.act, id));
  card.link.addEventListener("click", () => act("cut", id, card.from.value));
  card.link.ariaLabel = `Cut ${name} off`;
  card.from.setAttribute("aria-label", `The nodes to cut ${name} off from`);
  card.root.append(html("h3", {}, name, card.roles, card.status), card.facts, card.place, card.trouble,
    html("div", { className: "acts" }, card.life, card.pulse, card.link, card.from));
  card.root.dataset.node = name;
  return card;
}

function showCards() {
  const { cluster } = state;
  const controllers = (cluster.quorum?.voters ?? []).filter((voter) => !serves(voter.id));
  const nodes = [...controllers.map((voter) => ({ ...voter, why: "" })), ...cluster.brokers];
  for (const node of nodes) {
    if (!cards.has(node.id)) {
      cards.set(node.id, makeCard(node.id));
      byId("cards").append(cards.get(node.id).root);
      for (const card of cards.values()) offerPeers(card, nodes);
    }
    showCard(cards.get(node.id), node);
  }
}

function offerPeers(card, nodes) {
  const own = card.root.dataset.node;
  const peers = nodes.map((node) => node.id).filter((id) => nodeName(id) !== own);
  card.from.replaceChildren(html("option", { value: "" }, "from all"),
    ...peers.map((id) => html("option", { value: id }, `from ${nodeName(id)}`)));
}

function showCard(card, node) {
  const name = nodeName(node.id), isDown = node.status === "down", isFrozen = node.status === "frozen";
  put(card.root.dataset, "status", node.status);
  put(card.root.dataset, "late", isLate(node.id) ? "yes" : "no");
  putText(card.roles, serves(node.id) ? rolesOf(node.id).join(" + ") : "");
  putText(card.status, node.status, true);
  put(card.status, "title", STATUS[node.status] || node.status);
  putText(card.life, isDown ? "Start" : "Kill");
  put(card.life, "ariaLabel", `${isDown ? "Start" : "Kill"} ${name}`);
  put(card.pulse, "ariaLabel", `${isFrozen ? "Thaw" : "Freeze"} ${name}`);
  put(card.life.dataset, "act", isDown ? "start" : "kill");
  put(card.life, "className", isDown ? "" : "hurts");
  put(card.life, "title", isDown ? `Start ${name} again, with the data on its disk`
    : `Kill ${name}, as SIGKILL does: it writes nothing more, and closes nothing`);
  putText(card.pulse, isFrozen ? "Thaw" : "Freeze");
  put(card.pulse.dataset, "act", isFrozen ? "thaw" : "freeze");
  put(card.pulse, "disabled", isDown);
  put(card.pulse, "className", isFrozen ? "" : "hurts");
  put(card.pulse, "title", isFrozen ? `Let ${name} go on: its overdue timers expire at once`
    : `Freeze ${name}, as SIGSTOP does, or a long pause of a garbage collector`);
  put(card.link, "title", `Cut the network between ${name} and the nodes chosen beside this; clients still reach it`);
  const leads = [...state.partitions.values()].filter((each) => each.leader === node.id).length;
  const behind = votes(node.id) ? "" : behindInMetadata(node.id);
  put(card.facts, "title", "Its address, the number of partitions shown here that it leads, and how far its copy of the metadata log is behind");
  putText(card.facts, serves(node.id) ? [`${node.host}:${node.port}`, `leads ${count(leads)}`, behind].filter(Boolean).join(" · ") : "");
  putText(card.place, votes(node.id) ? quorumWords(node.id) : "");
  const late = isLate(node.id) ? "the controller still counts it as alive" : "";
  putText(card.trouble, [node.why, late, cutWords(node.id)].filter(Boolean).join("; "));
}

// Dead, and still alive to the controller: nobody takes over its partitions yet.
function isLate(id) {
  const broker = state.cluster.brokers.find((each) => each.id === id);
  return broker !== undefined && broker.fenced === false && (broker.status === "down" || broker.status === "frozen");
}

// The quorum: the leading controller writes the metadata log, all other nodes follow it.

function metadataLag(id) {
  const { quorum } = state.cluster;
  const all = quorum ? [...quorum.voters, ...quorum.observers] : [];
  const end = (wanted) => all.find((each) => each.id === wanted)?.log_end_offset ?? null;
  return quorum === null || end(id) === null || end(quorum.leader) === null ? null : Math.max(0, end(quorum.leader) - end(id));
}

function behindInMetadata(id) {
  const lag = metadataLag(id);
  return lasts(`metadata ${id}`, lag) ? `metadata −${count(lag)}` : "";
}

function quorumWords(id) {
  const { quorum } = state.cluster;
  const voter = quorum?.voters.find((each) => each.id === id);
  if (!voter || voter.status === "down") return "votes, and elects the leaders of partitions when it leads";
  if (quorum.leader === id) {
    return `★ leads the metadata in epoch ${count(quorum.leader_epoch)} · LEO ${count(voter.log_end_offset)} · HW ${count(quorum.high_watermark)}`;
  }
  const place = quorum.leader === null ? "no controller leads" : `follows ${nodeName(quorum.leader)}`;
  return [place, `LEO ${count(voter.log_end_offset)}`, behindInMetadata(id)].filter(Boolean).join(" · ");
}

const STATUS = {
  up: "It runs, and may lead",
  down: "It does not run",
  frozen: "It answers no request, and its timers stand still, until it is thawed",
  fenced: "It runs; the controller does not let it lead until it sends heartbeats and has caught up",
  leaving: "It is shutting down in good order: other brokers take over its partitions first",
  starting: "It runs, and has not registered yet",
  unknown: "Its state is not known",
};

function cutWords(id) {
  const there = new Set(), back = new Set();
  for (const [source, target] of state.cluster.cut) {
    if (source === id) there.add(target);
    if (target === id) back.add(source);
  }
  const both = [...there].filter((each) => back.has(each));
  const one = [...there].filter((each) => !back.has(each));
  const names = (ids) => ids.sort((a, b) => a - b).map(nodeName).join(", ");
  return [both.length ? `cut off from ${names(both)}` : "", one.length ? `does not reach ${names(one)}` : ""]
    .filter(Boolean).join("; ");
}

// Partitions.

const rows = new Map();

function columns() {
  return state.cluster.brokers.map((broker) => broker.id);
}

function showHead() {
  const brokers = columns();
  if (byId("head").dataset.for === brokers.join()) return;
  byId("head").dataset.for = brokers.join();
  const column = (text, title, className = "") => html("th", { scope: "col", title, className }, text);
  byId("table").classList.toggle("many", brokers.length > 4);
  byId("head").replaceChildren(
    column("partition", "Choose a partition to see its log"),
    column("leader", "The broker that takes writes and serves reads"),
    column("epoch", "The leader epoch"),
    column("ISR", "The number of replicas in sync, of all replicas"),
    ...brokers.map((id) => column(nodeName(id), `The replica on ${nodeName(id)}: its log end offset and its high watermark`, "of-broker")));
  for (const row of rows.values()) row.root.remove();
  rows.clear();
}

function makeRow(name) {
  const cell = (label, title) => html("td", { className: "number", "data-label": label, title });
  const row = {
    root: html("tr"), pick: html("button", { type: "button", className: "pick", textContent: name }),
    leader: cell("leader", ""), epoch: cell("epoch", "The leader epoch"), isr: cell("ISR", ""),
    replicas: new Map(),
  };
  row.pick.addEventListener("click", () => choose(name));
  row.root.append(html("th", { scope: "row" }, row.pick), row.leader, row.epoch, row.isr);
  for (const id of columns()) {
    const replica = { root: html("td", { className: "replica", "data-label": nodeName(id) }), as: html("span", { className: "as" }),
      ends: html("span", { className: "ends" }), behind: html("span", { className: "behind" }), why: html("span", { className: "why" }) };
    replica.root.append(replica.as, " ", replica.ends, " ",
      html("span", { className: "note" }, replica.behind, " ", replica.why));
    row.replicas.set(id, replica);
    row.root.append(replica.root);
  }
  return row;
}

function isShown(partition) {
  const text = byId("filter").value.trim();
  return (!partition.is_internal || byId("internal").checked) &&
    (!byId("troubled").checked || inTrouble(partition)) && (!text || nameOf(partition).includes(text));
}

function showRows() {
  showHead();
  const shown = state.order.filter((name) => state.partitions.has(name) && isShown(state.partitions.get(name)));
  const keep = new Set(shown);
  for (const [name, row] of rows) if (!keep.has(name)) { row.root.remove(); rows.delete(name); }
  let before = null;
  for (const name of shown) {
    if (!rows.has(name)) rows.set(name, makeRow(name));
    const row = rows.get(name);
    const place = before ? before.nextSibling : byId("rows").firstChild;
    if (place !== row.root) byId("rows").insertBefore(row.root, place);
    before = row.root;
    showRow(row, state.partitions.get(name), name);
  }
  if (!chosen || !state.partitions.has(chosen)) choose(shown[0] || null);
  const all = state.cluster.number_of_partitions, left = all - state.order.length;
  putText(byId("count"), `${count(shown.length)} of ${count(all)} shown` +
    (left > 0 ? `; the page gets ${count(state.order.length)}, those in trouble first` : ""));
  put(byId("none"), "hidden", all > 0);
}

function showRow(row, partition, name) {
  putText(row.leader, isOffline(partition) ? "none" : nodeName(partition.leader), true);
  row.leader.classList.toggle("bad", isOffline(partition));
  row.leader.classList.toggle("late", isLate(partition.leader));
  put(row.leader, "title", partition.why || "The broker that takes writes and serves reads");
  putText(row.epoch, count(partition.leader_epoch), true);
  putText(row.isr, `${partition.isr.length} of ${partition.replicas.length}`, true);
  row.isr.classList.toggle("bad", isUnder(partition));
  row.isr.classList.toggle("late", !isUnder(partition) && partition.isr.some(isLate));
  put(row.isr, "title", `In sync: ${partition.isr.map(nodeName).join(", ") || "none"}` +
    (partition.min_isr === null ? "" : `; acks=all needs ${partition.min_isr}`) + (partition.pending ? `; the leader ${partition.pending}` : ""));
  const isChosen = name === chosen;
  row.root.classList.toggle("chosen", isChosen);
  put(row.pick, "ariaPressed", String(isChosen));
  for (const [id, cells] of row.replicas) showReplica(cells, name, partition, partition.replicas.find((each) => each.broker === id));
}

function standing(partition, replica) {
  if (replica.role === "deposed") return "deposed";
  if (replica.broker === partition.leader) return "leader";
  return replica.in_isr ? "in sync" : "out";
}

function showReplica(cells, name, partition, replica) {
  put(cells.root, "hidden", false);
  if (!replica) {
    putText(cells.as, ""); putText(cells.ends, ""); putText(cells.behind, ""); putText(cells.why, "");
    put(cells.root, "title", "No replica here");
    return;
  }
  put(cells.root.dataset, "in", replica.in_isr ? "yes" : "no");
  put(cells.root.dataset, "live", replica.is_live ? "yes" : "no");
  const late = replica.in_isr && isLate(replica.broker);
  put(cells.root.dataset, "late", late ? "yes" : "no");
  putText(cells.as, { leader: "★ leader", "in sync": "● in sync", out: "○ out", deposed: "☆ deposed" }[standing(partition, replica)] +
    (late ? `, ${state.cluster.brokers.find((each) => each.id === replica.broker).status}` : ""), true);
  putText(cells.ends, `LEO\u00a0${count(replica.log_end_offset)} HW\u00a0${count(replica.high_watermark)}`);
  put(cells.ends, "title", endsTitle(replica));
  showBehind(cells.behind, name, replica);
  put(cells.behind, "title", "The number of records that this replica lacks, and how long the leader has not seen it caught up");
  putText(cells.why, replica.in_isr && replica.is_live && standing(partition, replica) !== "deposed" ? ""
    : replica.why.replace("left the ISR: ", "").replace(`${nodeName(replica.broker)} was `, ""));
  put(cells.root, "title", replica.why);
}

function endsTitle(replica) {
  return `LEO ${count(replica.log_end_offset)}: the offset that the next record gets here\n` +
    `HW ${count(replica.high_watermark)}: the records below it are committed, as far as this replica knows` +
    (replica.is_live ? "" : "\nas it was seen last");
}

// What is not known, as while the leader does not answer, stays what it was.
function behindWords(name, replica, before) {
  if (replica.lag === null) return before;
  const going = replica.behind_since_ms === null ? 0 : sinceMs(replica.behind_since_ms);
  if (!lasts(`${name} ${replica.broker}`, replica.lag > 0, going)) return "";
  return `−${count(replica.lag)}${going < LASTS_MS ? "" : ` for ${seconds(going)}`}`;
}

const showBehind = (cell, name, replica) => putText(cell, behindWords(name, replica, cell.textContent));

// One partition's log, drawn by epoch.

function choose(name) {
  chosen = name;
  for (const [each, row] of rows) {
    row.root.classList.toggle("chosen", each === name);
    row.pick.ariaPressed = String(each === name);
  }
  showLog();
}

function runsOf(replica) {
  const starts = replica.epochs || [];
  return starts.map(([epoch, from], index) => [epoch, Math.max(from, replica.log_start_offset ?? 0),
    index + 1 < starts.length ? starts[index + 1][1] : replica.log_end_offset]).filter(([, from, to]) => to > from);
}

const epochAt = (runs, offset) => {
  const found = runs.find(([, from, to]) => from <= offset && offset < to);
  return found ? found[0] : null;
};

function showLog() {
  const partition = state.partitions.get(chosen);
  putText(byId("chosen"), partition ? chosen : "no partition");
  if (!partition) { byId("logs").replaceChildren(); byId("epochs").replaceChildren(); putText(byId("elected"), ""); return; }
  putText(byId("elected"), isOffline(partition) ? partition.why || "it has no leader"
    : `${nodeName(partition.leader)} leads in epoch ${partition.leader_epoch}${partition.why ? `: ${partition.why}` : ""}` +
      (partition.pending ? ` (it ${partition.pending})` : ""));
  const width = Math.max(160, byId("logs").clientWidth - 46);
  const ends = partition.replicas.map((each) => each.log_end_offset ?? 0);
  const last = Math.max(1, ...ends);
  const marks = partition.replicas.flatMap((each) => [each.log_end_offset, each.high_watermark]).filter((each) => each !== null);
  const least = Math.min(last - WINDOW, ...marks);
  const first = Math.max(0, Math.floor(least - Math.max(6, (last - least) * 0.08)));
  const leads = partition.replicas.find((each) => each.broker === partition.leader && each.role === "leader");
  byId("logs").replaceChildren(...partition.replicas.map((replica) => logLine(replica, leads, first, last, width)));
  showEpochs(partition);
}

function logLine(replica, leads, first, last, width) {
  const words = html("p", { className: replica.in_isr ? "" : "out" },
    html("b", { title: endsTitle(replica) }, `LEO ${count(replica.log_end_offset)}, HW ${count(replica.high_watermark)}. `),
    `${replica.is_live ? "" : "Last known. "}${capital(replica.why)}.`);
  return html("div", { className: `line${replica.role === "down" ? " down" : ""}` },
    html("span", { className: "name", title: `The replica on ${nodeName(replica.broker)}` }, nodeName(replica.broker)),
    html("div", {}, drawLog(replica, leads, first, last, width), words));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

let drawn = 0;

function drawLog(replica, leads, first, last, width) {
  const hatch = `hatch${drawn++}`;
  const cell = Math.min(30, (width - 56) / (last - first)), x = (offset) => 1 + (Math.max(first, offset) - first) * cell;
  const runs = runsOf(replica);
  const picture = svg("svg", { viewBox: `0 0 ${width} 38`, role: "img", preserveAspectRatio: "xMinYMid meet" });
  picture.setAttribute("aria-label", `${nodeName(replica.broker)}: ` +
    (runs.map(([epoch, from, to]) => `epoch ${epoch} from ${from} to ${to - 1}`).join(", ") || "no records"));
  const pattern = svg("pattern", { id: hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("defs", {}, picture));
  svg("line", { x1: 0, x2: 0, y1: 0, y2: 5, class: "hatching" }, pattern);
  const each = last - first <= MOST_CELLS ? drawRecords : drawReigns;
  each({ picture, replica, runs, leads, first, cell, x, hatch });
  const mark = (offset, name, className) => {
    if (offset === null || offset < first) return;
    svg("line", { x1: x(offset), x2: x(offset), y1: 0, y2: 26, class: className }, picture);
    svg("text", { x: x(offset) + 2, y: 36, class: className }, picture, name);
  };
  const ends = replica.log_end_offset, committed = replica.high_watermark;
  const near = ends !== null && committed !== null && x(ends) - x(committed) < 24;
  mark(ends, near ? "" : "LEO", "leo");
  mark(committed, ends === committed ? "HW = LEO" : near ? "HW < LEO" : "HW", "hw");
  return picture;
}

// Records of an older leader epoch that the leader lacks: they will be truncated.
function conflict(leads, truth, epoch, offset) {
  if (!leads || offset < leads.log_start_offset || epoch >= leads.leader_epoch) return "";
  const real = epochAt(truth, offset);
  if (real === epoch) return "";
  return real === null ? "the leader's log has no such record: it will be cut"
    : `the leader has a record of epoch ${real} here: this one will be truncated`;
}

function drawRecords({ picture, replica, runs, leads, first, cell, x, hatch }) {
  const truth = leads ? runsOf(leads) : [];
  for (const [epoch, from, to] of runs) {
    for (let offset = Math.max(from, first); offset < to; offset++) {
      const isCommitted = offset < (replica.high_watermark ?? 0), parts = conflict(leads, truth, epoch, offset);
      const box = { x: x(offset), y: 3, width: Math.max(1, cell - 1), height: 20, rx: 2 };
      const record = svg("rect", { ...box, fill: epochColour(epoch, isCommitted ? 1 : PALE) }, picture);
      const what = `offset ${offset}, epoch ${epoch}, ${isCommitted ? "committed" : "not committed as far as this replica knows"}`;
      svg("title", {}, record, parts ? `${what}; ${parts}` : what);
      if (parts) svg("rect", { ...box, fill: `url(#${hatch})`, "pointer-events": "none" }, picture);
      if (cell >= 15) {
        svg("text", { x: x(offset) + cell / 2, y: 17, "text-anchor": "middle", class: isCommitted ? "on" : "", "pointer-events": "none" },
          picture, offset % 1000);
      }
    }
  }
}

function drawReigns({ picture, replica, runs, first, x }) {
  for (const [epoch, from, to] of runs) {
    if (to <= first) continue;
    const start = Math.max(from, first), committed = Math.min(Math.max(start, replica.high_watermark ?? start), to);
    for (const [left, right, alpha] of [[start, committed, 1], [committed, to, PALE]]) {
      if (right <= left) continue;
      const box = svg("rect", { x: x(left), y: 3, width: Math.max(1, x(right) - x(left) - 0.5), height: 20, fill: epochColour(epoch, alpha) }, picture);
      svg("title", {}, box, `epoch ${epoch}: offsets ${count(from)} to ${count(to - 1)}`);
    }
    if (x(to) - x(start) > 60) svg("text", { x: x(start) + 6, y: 17, class: x(committed) - x(start) > 60 ? "on" : "", "pointer-events": "none" }, picture, `e${epoch}: ${count(start)}…`);
  }
}

function showEpochs(partition) {
  const seen = new Set(partition.replicas.flatMap((each) => runsOf(each).map(([epoch]) => epoch)));
  const last = [...seen].sort((a, b) => a - b).slice(-12);
  byId("epochs").replaceChildren(...last.map((epoch) => {
    const swatch = html("span", { className: "swatch" });
    swatch.style.background = epochColour(epoch);
    return html("span", { title: `Records that were appended in leader epoch ${epoch}` }, swatch, `epoch ${epoch}`);
  }));
}

// What happened.

function addEvents(added, missed) {
  const list = byId("events");
  if (missed > 0) list.prepend(html("li", { className: "gap" }, `${some(missed, "earlier event")} not kept`));
  list.prepend(...added.map(eventLine).reverse());
  while (list.childElementCount > KEPT_EVENTS) list.lastChild.remove();
}

function eventLine(event) {
  const line = html("li", { "data-kind": event.kind, title: event.name.replace(/_/g, " ") },
    html("time", {}, clockTime(event.at_ms)), html("span", { className: "who" }, event.node),
    html("span", { className: "what" }, event.text.replace(/->/g, "→")));
  line.hidden = !shownKinds.has(event.kind);
  return line;
}

function offerKinds() {
  for (const [kind, words] of Object.entries(KINDS)) {
    const box = html("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => {
      if (box.checked) shownKinds.add(kind); else shownKinds.delete(kind);
      for (const line of byId("events").children) if (line.dataset.kind) line.hidden = !shownKinds.has(line.dataset.kind);
    });
    byId("kinds").append(html("label", {}, box, ` ${words}`));
  }
}

// A screen reader speaks the important events, a few sentences at a time.
let toSay = [];
let isFirst = true; // the first update of a connection has old events

function say(added) {
  const matters = (each) => each.kind === "fault" ||
    (each.name === "leader_elected" && !each.partition.startsWith("__"));
  toSay.push(...added.filter(matters).map((each) => each.text));
}

setInterval(() => {
  if (toSay.length) {
    const more = toSay.length > 3 ? `, and ${toSay.length - 3} more` : "";
    byId("spoken").textContent = toSay.slice(0, 3).join("; ") + more;
    toSay = [];
  }
}, 1500);

// The buttons.

const placeOf = (node) => (serves(node) ? `brokers/${node}` : node === CONTROLLER ? "controller" : `controllers/${node}`);

// Requests to the control API (docs/control.md).
function requestFor(what, node, other) {
  if (what === "heal") return ["network/heal", {}];
  if (what === "cut") return ["network/cut", other === "" ? { nodes: [node] } : { nodes: [node], others: [Number(other)] }];
  return [`${placeOf(node)}/${what}`, {}];
}

async function refusalOf(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error || text;
  } catch {
    return `${answer.status} ${text.slice(0, 200)}`;
  }
}

async function act(what, node, other = "") {
  const done = byId("done"), [path, body] = requestFor(what, node, other);
  const words = what === "heal" ? "heal the network"
    : `${what} ${nodeName(node)}${what === "cut" ? ` off from ${other === "" ? "all" : nodeName(Number(other))}` : ""}`;
  done.className = "";
  done.textContent = `${words} …`;
  try {
    const answer = await fetch(`control/${path}`,
      { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(await refusalOf(answer));
    done.textContent = `Done: ${words}`;
  } catch (error) {
    done.className = "bad";
    done.textContent = `Not done: ${words}: ${error.message}`;
  }
}

// Updates.

function summary() {
  const { cluster } = state, all = [...state.partitions.values()];
  const offline = all.filter(isOffline).length, under = all.filter(isUnder).length;
  const up = cluster.brokers.filter((each) => each.status === "up").length;
  const leads = cluster.quorum && cluster.quorum.leader !== null
    ? `${nodeName(cluster.quorum.leader)} leads in epoch ${count(cluster.quorum.leader_epoch)}` : "no controller leads";
  return [`cluster ${cluster.cluster_id ?? "?"}`, leads, `${up} of ${some(cluster.brokers.length, "broker")} up`,
    some(cluster.number_of_partitions, "partition"), `${count(under)} under-replicated`, `${count(offline)} without a leader`].join(" · ");
}

function showVerdict({ level, word, text }) {
  const verdict = byId("verdict");
  put(verdict, "className", `verdict ${level}`);
  putText(verdict.firstChild, `${word}:`);
  putText(verdict.lastChild, text);
}

function take(update) {
  state.now = update.now;
  state.heardAt = performance.now();
  if (update.cluster) state.cluster = update.cluster;
  if (update.verdict) showVerdict(update.verdict);
  if (update.order) {
    state.order = update.order;
    const there = new Set(update.order);
    for (const name of state.partitions.keys()) if (!there.has(name)) state.partitions.delete(name);
  }
  for (const partition of update.partitions) state.partitions.set(nameOf(partition), partition);
  showCards();
  showRows();
  if (update.order || update.partitions.some((each) => nameOf(each) === chosen)) showLog();
  addEvents(update.events, update.missed);
  if (!isFirst) say(update.events);
  isFirst = false;
  putText(byId("summary"), summary());
  document.documentElement.dataset.ready = "yes";
}

function listen() {
  const stream = new EventSource("stream");
  stream.addEventListener("open", () => {
    isFirst = true;
    byId("events").replaceChildren();
    byId("link").className = "live";
    byId("link").textContent = "live";
  });
  stream.addEventListener("message", (message) => take(JSON.parse(message.data)));
  stream.addEventListener("error", () => {
    byId("link").className = "lost";
    byId("link").textContent = "no answer; connecting again";
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
}

for (const id of ["filter", "troubled", "internal"]) byId(id).addEventListener("input", () => state.cluster && showRows());
byId("heal").addEventListener("click", () => act("heal"));
offerKinds();
setInterval(() => {
  for (const [name, row] of rows) {
    const partition = state.partitions.get(name);
    for (const replica of partition ? partition.replicas : []) {
      if (row.replicas.has(replica.broker)) showBehind(row.replicas.get(replica.broker).behind, name, replica);
    }
  }
}, 500);
new ResizeObserver(() => showLog()).observe(byId("logs"));
listen();
