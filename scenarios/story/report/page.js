// The scene is plain data (scenarios/story/report/scene.py); drawing.js stands before this script. Nothing here
// knows Kafka's rules.
window.faults = [];
window.addEventListener("error", (event) => {
  window.faults.push(event.message);
  document.documentElement.dataset.faults = window.faults.join("; ");
});

const scene = JSON.parse(document.getElementById("scene").textContent);
const byId = (id) => document.getElementById(id);
const KINDS = { data: true, control: true, metadata: false, internal: false, idle: false };
const shown = { ...KINDS };
let partition = scene.partitions.find((name) => !name.startsWith("__")) || scene.partitions[0] || null;
let moments = [];
let place = new Map(); // a moment's height in the drawing
let current = 0;

const visibleArrows = () => scene.arrows.filter((arrow) => shown[arrow.kind]);

// Time runs downwards. Moments keep their order; long waits are drawn short, and say so.
function layOut() {
  const times = new Set([0]);
  for (const each of scene.marks) times.add(each.at);
  for (const each of scene.commands) times.add(each.at);
  for (const each of visibleArrows()) {
    times.add(each.sent);
    if (each.there !== null) times.add(each.there);
  }
  const labelled = new Set(visibleArrows().filter((arrow) => arrow.says).map((arrow) => arrow.sent));
  moments = [...times].sort((a, b) => a - b);
  place = new Map();
  let height = 14, before = 0;
  for (const at of moments) {
    const gap = at - before;
    if (gap > 0) height += Math.min(46, (labelled.has(at) ? 13 : 7) + 9 * Math.log2(1 + gap * 50));
    place.set(at, height);
    before = at;
  }
  return height + 30;
}

const laneX = (lane, width) => {
  const index = Math.max(0, scene.lanes.indexOf(lane));
  return 58 + ((width - 84) * (index + 0.5)) / scene.lanes.length;
};

// What a node was at a time: from its standings, and from faults on its lane.
function lives(lane) {
  const spans = [];
  let from = 0, state = "up";
  for (const mark of scene.marks) {
    if (mark.lane !== lane) continue;
    const next = { node_killed: "down", power_cut: "down", node_stopped: "down",
      node_paused: "paused", node_resumed: "up", node_started: "up" }[mark.name];
    if (next === undefined || next === state) continue;
    spans.push([from, mark.at, state]);
    from = mark.at; state = next;
  }
  spans.push([from, moments[moments.length - 1], state]);
  return spans;
}

function leaderships(lane) {
  const spans = [];
  let open = null;
  for (const log of scene.logs) {
    if (log.node !== lane || log.partition !== partition) continue;
    if (open) { spans.push([open.at, log.at, open.leader_epoch]); open = null; }
    if (log.role === "leads") open = log;
  }
  if (open) spans.push([open.at, moments[moments.length - 1], open.leader_epoch]);
  return spans;
}

const heightAt = (at) => {
  if (place.has(at)) return place.get(at);
  let best = moments[0];
  for (const moment of moments) { if (moment > at) break; best = moment; }
  return place.get(best);
};

function drawLanes(width) {
  const head = byId("lanes");
  head.replaceChildren();
  head.setAttribute("height", 24);
  for (const lane of scene.lanes) {
    svg("text", { x: laneX(lane, width), y: 16, "text-anchor": "middle", "font-weight": 600 }, head, lane);
  }
}

function drawWaits(drawing) {
  let before = 0;
  for (const at of moments) {
    if (at - before >= 0.5) {
      const y = (place.get(before) + place.get(at)) / 2 + 4;
      svg("text", { x: 4, y, class: "faint" }, drawing, `… ${(at - before).toFixed(1)} s`);
    }
    before = at;
  }
}

function drawArrow(arrow, drawing, width) {
  const x1 = laneX(arrow.from, width), y1 = heightAt(arrow.sent);
  const lost = arrow.there === null;
  const full = laneX(arrow.to, width);
  const x2 = lost ? x1 + (full - x1) * 0.6 : full;
  const y2 = lost ? y1 + 14 : heightAt(arrow.there);
  const line = svg("line", { x1, y1, x2, y2, class: `arrow ${arrow.kind}${lost ? " lost" : ""}`,
    "marker-end": lost ? "url(#cross)" : "url(#head)" }, drawing);
  svg("title", {}, line, `${arrow.from} to ${arrow.to}: ${arrow.api} ${arrow.says}` +
    `\n${seconds(arrow.sent)} ${lost ? "never got there" : `to ${seconds(arrow.there)}`}`);
  if (arrow.says && Math.abs(x2 - x1) > 90) {
    const text = arrow.says.length > 26 ? `${arrow.says.slice(0, 25)}…` : arrow.says;
    // Nearer to its sender: an answer crosses the next question in the middle.
    const x = x1 + (x2 - x1) * 0.4, y = y1 + (y2 - y1) * 0.4 - 3;
    svg("text", { x, y, "text-anchor": "middle", class: "says" }, drawing, text);
  }
}

// The marks of a lane at one height share one line.
function sayBeside(mark, x, y, drawing, said) {
  const name = mark.name.replace(/_/g, " "), before = said.get(mark.lane);
  if (before && Math.abs(before.y - y) < 10) {
    if (!before.text.textContent.includes(name)) before.text.textContent += `, ${name}`;
    return;
  }
  const text = svg("text", { x: x + 10, y: y + 4, class: `says ${mark.kind}` }, drawing, name);
  said.set(mark.lane, { y, text });
}

function drawMark(mark, drawing, width, said) {
  if (!scene.lanes.includes(mark.lane)) return;
  if (mark.partition !== null && mark.partition !== partition) return;
  const x = laneX(mark.lane, width), y = heightAt(mark.at);
  const shape = mark.kind === "fault"
    ? svg("path", { d: `M${x - 6} ${y - 6}h12v12h-12z`, class: "fault" }, drawing)
    : mark.kind === "decision"
      ? svg("path", { d: `M${x} ${y - 7}l7 7l-7 7l-7 -7z`, class: "decision" }, drawing)
      : svg("circle", { cx: x, cy: y, r: mark.kind === "cut" ? 6 : 3, class: mark.kind }, drawing);
  svg("title", {}, shape, `${seconds(mark.at)} ${mark.lane}: ${mark.why || mark.name}`);
  if (mark.kind === "fault" || mark.name === "leader_elected" || mark.kind === "cut") {
    sayBeside(mark, x, y, drawing, said);
  }
}

function draw() {
  const drawing = byId("drawing");
  const width = byId("frame").clientWidth;
  const height = layOut();
  drawing.replaceChildren();
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.setAttribute("height", height);
  byId("lanes").setAttribute("viewBox", `0 0 ${width} 24`);
  const definitions = svg("defs", {}, drawing);
  const head = svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7,
    markerHeight: 7, orient: "auto" }, definitions);
  svg("path", { d: "M0 1L7 4L0 7", fill: "none", stroke: "currentColor" }, head);
  const cross = svg("marker", { id: "cross", viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 8,
    markerHeight: 8 }, definitions);
  svg("path", { d: "M1 1L7 7M7 1L1 7", stroke: "#c0392b" }, cross);
  drawLanes(width);
  drawWaits(drawing);
  for (const lane of scene.lanes) {
    const x = laneX(lane, width);
    for (const [from, to, state] of lives(lane)) {
      svg("line", { x1: x, x2: x, y1: heightAt(from), y2: heightAt(to), class: `lane ${state}` }, drawing);
    }
    for (const [from, to, epoch] of leaderships(lane)) {
      svg("line", { x1: x, x2: x, y1: heightAt(from), y2: heightAt(to), stroke: epochColour(epoch, 0.55),
        "stroke-width": 9 }, drawing);
    }
  }
  for (const arrow of visibleArrows()) drawArrow(arrow, drawing, width);
  const said = new Map();
  for (const mark of scene.marks) drawMark(mark, drawing, width, said);
  svg("line", { id: "nowline", x1: 0, x2: width, y1: 0, y2: 0, class: "nowline" }, drawing);
  byId("scrubber").max = moments.length - 1;
}

function showLogs(at) {
  const past = scene.logs.filter((log) => log.at <= at);
  byId("logs").replaceChildren(logTable(lastStates(past, partition, scene.lanes), byId("logs").clientWidth));
}

function showWhy(at) {
  const tells = (mark) => mark.at <= at && mark.kind !== "news" &&
    (mark.partition === null || mark.partition === partition);
  const last = scene.marks.filter(tells).slice(-2).reverse();
  byId("why").replaceChildren(...last.flatMap((mark, index) => [
    index ? html("br", {}) : "",
    html("b", {}, `${seconds(mark.at)} ${mark.lane} `), mark.why || mark.name.replace(/_/g, " "),
  ]));
}

// What is said at this moment, in words: beside an arrow there is not always room.
function showMessages(at) {
  const now = visibleArrows().filter((arrow) => arrow.sent === at || arrow.there === at).slice(0, 6);
  byId("messages").replaceChildren(...now.map((arrow) => html("li", {},
    `${arrow.from} → ${arrow.to}: ${arrow.api} ${arrow.says}`,
    arrow.there === null ? " (never got there)" : arrow.sent === at ? " (sent)" : " (arrived)")));
}

function showStep(at) {
  let begun = scene.commands.filter((command) => command.at <= at).length;
  for (const [index, step] of scene.steps.entries()) {
    const current = begun > 0 && begun <= step.commands.length;
    byId("steps").children[3 * index + 1].classList.toggle("current", current);
    begun -= step.commands.length;
  }
}

function show(index, follow) {
  current = Math.max(0, Math.min(moments.length - 1, index));
  const at = moments[current];
  byId("scrubber").value = current;
  byId("time").textContent = seconds(at);
  const line = byId("nowline"), y = place.get(at);
  line.setAttribute("y1", y);
  line.setAttribute("y2", y);
  showLogs(at);
  showWhy(at);
  showMessages(at);
  showStep(at);
  if (follow) byId("frame").scrollTop = y - byId("frame").clientHeight * 0.5;
}

function redraw() {
  const at = moments[current] || 0;
  draw();
  show(Math.max(0, moments.findLastIndex((moment) => moment <= at)), false);
}

byId("facts").textContent = `seed ${scene.seed}, ${scene.virtual_seconds.toFixed(1)} virtual seconds, ` +
  `${scene.arrows.length} messages, trace ${scene.trace_hash}`;
function offerPartitions() {
  const offered = scene.partitions.filter((name) => shown.internal || name === partition || !name.startsWith("__"));
  byId("partition").replaceChildren(...offered.map((name) => html("option", { selected: name === partition }, name)));
}

function showVerdict() {
  const { level, word, text } = scene.verdict;
  byId("verdict").className = `verdict ${level}`;
  byId("verdict").replaceChildren(html("b", {}, `${word}:`), ` ${text}`);
}

function toTurningPoint() {
  show(Math.max(0, moments.findLastIndex((moment) => moment <= scene.turning_point.at)), true);
}

showVerdict();
if (scene.partitions.includes(scene.turning_point.partition)) partition = scene.turning_point.partition;
offerPartitions();
for (const kind of Object.keys(KINDS)) {
  const count = scene.arrows.filter((arrow) => arrow.kind === kind).length;
  const box = html("input", { type: "checkbox", checked: shown[kind] });
  box.addEventListener("change", () => { shown[kind] = box.checked; offerPartitions(); redraw(); });
  byId("kinds").append(html("label", {}, box, ` ${kind} (${count})`));
}
for (const step of scene.steps) {
  byId("steps").append(html("p", {}, step.prose), html("pre", {}, step.commands.join("\n")),
    html("pre", { className: "answer" }, step.answer.join("\n")));
}
byId("partition").addEventListener("change", (event) => { partition = event.target.value; redraw(); });
byId("scrubber").addEventListener("input", (event) => show(Number(event.target.value), true));
byId("back").addEventListener("click", () => show(current - 1, true));
byId("turn").addEventListener("click", toTurningPoint);
byId("turn").title = scene.turning_point.why;
byId("on").addEventListener("click", () => show(current + 1, true));
byId("drawing").addEventListener("click", (event) => {
  const box = byId("drawing").getBoundingClientRect();
  const y = event.clientY - box.top;
  show(moments.findLastIndex((moment) => place.get(moment) <= y), false);
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select")) return;
  if (event.key === "ArrowRight") show(current + 1, true);
  if (event.key === "ArrowLeft") show(current - 1, true);
});
new ResizeObserver(() => redraw()).observe(byId("frame"));
byId("legend").open = window.innerWidth >= 700;
draw();
toTurningPoint();
document.documentElement.dataset.ready = "yes";
