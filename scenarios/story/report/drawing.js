// Draws the logs of the replicas of one partition, from the `logs` of a scene (scenarios/story/report/scene.py).
// The report of a story and the page of stories both use it, behind replication/observe/drawing.js.
const LAST_OFFSETS = 60; // cells in a drawn log; a longer one, or one on a narrow screen, shows its end
const CELL = 18;
const seconds = (at) => `${at.toFixed(4)} s`;

// The last state of each replica of a partition in `logs`, in the order of the lanes.
function lastStates(logs, partition, lanes) {
  const found = new Map();
  for (const log of logs) if (log.partition === partition) found.set(log.node, log);
  return lanes.filter((lane) => found.has(lane)).map((lane) => found.get(lane));
}

function drawLog(log, first, last) {
  const cell = CELL, height = 24, columns = Math.max(1, last - first);
  const picture = svg("svg", { width: columns * cell + 32, height: height + 12, role: "img",
    "aria-label": `${log.node}: ${log.drawn}` });
  const x = (offset) => 4 + (Math.max(first, offset) - first) * cell;
  for (const [epoch, from, to] of log.runs) {
    for (let offset = Math.max(from, first); offset <= to; offset++) {
      const isCommitted = offset < log.high_watermark;
      const box = svg("rect", { x: x(offset), y: 2, width: cell - 1, height: height - 4,
        fill: epochColour(epoch, isCommitted ? 1 : PALE), rx: 2 }, picture);
      svg("title", {}, box, `offset ${offset}, leader epoch ${epoch}`);
      svg("text", { x: x(offset) + cell / 2 - 0.5, y: 16, "text-anchor": "middle", "font-size": 9,
        class: isCommitted ? "committed" : "" }, picture, offset % 1000);
    }
  }
  const mark = (offset, name, className) => {
    svg("line", { x1: x(offset) - 0.5, x2: x(offset) - 0.5, y1: 0, y2: height, class: className }, picture);
    svg("text", { x: x(offset) + 2, y: height + 9, "font-size": 9, class: className }, picture, name);
  };
  mark(log.log_end_offset, log.log_end_offset === log.high_watermark ? "" : "LEO", "leo");
  mark(log.high_watermark, "HW", "hw");
  return picture;
}

// `width` is the room in pixels.
function logTable(replicas, width = Infinity) {
  const last = Math.max(0, ...replicas.map((log) => log.log_end_offset));
  const fits = Math.max(6, Math.floor((width - 100) / CELL));
  const first = Math.max(0, last - Math.min(LAST_OFFSETS, fits));
  const rows = replicas.map((log) => {
    const role = log.role === "leads"
      ? `leads, epoch ${log.leader_epoch}, ${log.members}` : log.role;
    return html("tr", { className: log.role === "down" ? "down" : "" },
      html("th", { scope: "row" }, log.node),
      html("td", {}, drawLog(log, first, last),
        html("p", { className: "role" }, html("code", {}, log.drawn),
          ` HW ${log.high_watermark} LEO ${log.log_end_offset} ${role}`)));
  });
  return html("table", { className: "logs" }, html("tbody", {}, ...rows));
}
