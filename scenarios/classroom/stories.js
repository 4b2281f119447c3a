// Asks for runs (scenarios/classroom/routes.py) and steps through them; drawing.js draws the logs.
window.faults = [];
const faulty = (message) => {
  window.faults.push(message);
  document.documentElement.dataset.faults = window.faults.join("; ");
};
window.addEventListener("error", (event) => faulty(event.message));
window.addEventListener("unhandledrejection", (event) => faulty(String(event.reason)));

const byId = (id) => document.getElementById(id);
const LINE = 20; // the height of a line of the editor, --line in stories.css
const START = "To start with", MUSEUM = "Famous bugs of Apache Kafka";
const MOST_WHYS = 100;

let catalogue = { stories: [], exhibits: [] };
let chosen = null; // the name of a story
let original = ""; // its text
let wrong = null; // the line at fault
let run = null; // the result of the last run, and the text that it ran
let current = 0; // a command of it
let running = null; // what aborts the run under way

const some = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
const spaced = (text) => text.replace(/->/g, "→");

// The list.

function offer() {
  const wanted = byId("filter").value.trim().toLowerCase();
  const fits = (...texts) => texts.some((text) => text.toLowerCase().includes(wanted));
  const stories = catalogue.stories.filter((each) => fits(each.title, each.name, ...each.shows));
  const groups = new Map([[START, stories.filter((each) => each.to_start_with)]]);
  for (const each of stories) groups.set(each.group, [...(groups.get(each.group) ?? []), each]);
  const parts = [...groups].filter(([, found]) => found.length).flatMap(([group, found]) => [
    html("h3", {}, group), html("ul", {}, ...found.map((each) => listed(each, group)))]);
  const exhibits = catalogue.exhibits.filter((each) => fits(each.title, each.name));
  if (exhibits.length) {
    parts.push(html("h3", {}, MUSEUM), html("ul", {}, ...exhibits.map((each) => html("li", {},
      choice(each.story, `${each.name}: ${each.title}`, each.year, MUSEUM, each.name)))));
  }
  byId("list").replaceChildren(...(parts.length ? parts : ["No story has this in its title."]));
}

const listed = (story, group) => html("li", {},
  choice(story.name, `${story.to_start_with ? "★ " : ""}${story.title}`, story.shows.join(", "), group));

// A story may stand in the list twice: the group is part of its button's name.
function choice(name, title, small, group, bug = null) {
  const button = html("button", { type: "button" }, title, " ", html("small", {}, small));
  button.ariaPressed = String(name === chosen && bug === chosenBug());
  if (group === START || bug) button.ariaLabel = `${title} (${group})`;
  button.addEventListener("click", () => choose(name, { bug }));
  return button;
}

async function choose(name, { text = null, seed = "", bug = null } = {}) {
  const answer = await fetch(`stories/text/${encodeURIComponent(name)}`);
  if (!answer.ok) { tell("bad", await refusalOf(answer)); return; }
  original = await answer.text();
  chosen = name;
  const story = catalogue.stories.find((each) => each.name === name);
  byId("edit-title").textContent = story?.title ?? name;
  byId("about").textContent = [name, story?.shows.join(", ")].filter(Boolean).join(" · ");
  byId("seed").value = seed;
  offerBugs(bug);
  setText(text ?? original);
  byId("text").scrollTop = 0;
  forget();
  tell("", "Not run yet.");
  offer();
  if (matchMedia("(max-width: 68rem)").matches) byId("chooser").open = false;
  byId("edit").scrollIntoView({ block: "nearest" });
}

// The switches of the museum: at most one is on.

const chosenBug = () => byId("bugs").querySelector("input:checked")?.value ?? null;

function offerBugs(bug) {
  const exhibits = catalogue.exhibits.filter((each) => each.story === chosen);
  byId("bugs").replaceChildren(...exhibits.map((each) => {
    const box = html("input", { type: "checkbox", value: each.name, checked: each.name === bug });
    box.addEventListener("change", () => {
      for (const other of byId("bugs").querySelectorAll("input")) if (other !== box) other.checked = false;
    });
    return html("label", {}, box, ` with the bug ${each.name}, ${each.year}: ${each.title}`);
  }));
}

// The editor.

function setText(text) {
  byId("text").value = text;
  edited();
}

function edited() {
  mark(null);
  const text = byId("text").value;
  byId("reset").disabled = text === original;
  byId("save").download = `${chosen ?? "story"}.txt`;
  byId("shared").textContent = "";
  byId("seed").placeholder = /^#\s*seed:\s*(\d+)/m.exec(text)?.[1] ?? "1";
  number();
}

function number() {
  const lines = byId("text").value.split("\n").length;
  const at = run && run.text === byId("text").value ? run.commands[current]?.number : null;
  byId("numbers").replaceChildren(...Array.from({ length: lines }, (_, index) => html("span",
    { className: index + 1 === wrong ? "wrong" : index + 1 === at ? "current" : "" }, String(index + 1))));
  follow();
}

// The numbers and the mistake move with the text.
function follow() {
  const top = byId("text").scrollTop;
  byId("numbers").scrollTop = top;
  const place = Math.max(0, 6 + (wrong ?? 0) * LINE - top);
  byId("mistake").style.top = `${Math.min(place, byId("editor").clientHeight - 40)}px`;
}

function mark(line, message = "") {
  wrong = line;
  byId("mistake").hidden = line === null;
  byId("mistake").textContent = message;
  byId("text").ariaInvalid = String(line !== null);
  if (line !== null) reveal(line);
  number();
}

function reveal(line) {
  const text = byId("text"), top = (line - 1) * LINE;
  if (top < text.scrollTop || top + 3 * LINE > text.scrollTop + text.clientHeight) {
    text.scrollTop = Math.max(0, top - text.clientHeight / 2);
  }
}

// Running.

function tell(level, text) {
  byId("verdict").dataset.level = level;
  byId("verdict").textContent = text;
}

function forget() {
  running?.abort();
  run = null;
  byId("steps").hidden = true;
}

async function refusalOf(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error || text;
  } catch {
    return `${answer.status} ${text.slice(0, 200)}`;
  }
}

async function runText() {
  if (running) { running.abort(); return; }
  const text = byId("text").value, seed = byId("seed").value === "" ? null : Number(byId("seed").value);
  const abort = running = new AbortController(), began = performance.now();
  const wait = () => tell("", `Running … ${Math.round((performance.now() - began) / 1000)} s`);
  const waiting = setInterval(wait, 1000);
  mark(null);
  wait();
  byId("run").textContent = "Stop";
  try {
    const answer = await fetch("stories/run", { method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify({ text, seed, bug: chosenBug() }), signal: abort.signal });
    if (!answer.ok) throw new Error(await refusalOf(answer));
    const found = await answer.json();
    if (running === abort) show({ ...found, text });
  } catch (error) {
    if (running === abort) tell("bad", abort.signal.aborted ? "Stopped." : error.message);
  } finally {
    clearInterval(waiting);
    if (running === abort) running = null;
    byId("run").textContent = "Run";
  }
}

const wrongWords = ({ line, message }) => (line === null || message.startsWith("line ") ? message : `line ${line}: ${message}`);

function show(found) {
  run = found;
  byId("steps").hidden = run.commands.length === 0;
  const differs = run.commands.flatMap((each) => each.answer).filter(([kind]) => kind !== "same").length;
  if (run.wrong) tell("bad", wrongWords(run.wrong));
  else if (differs) tell("changed", `The story ran to its end: ${some(differs, "line")} of its answers ${differs === 1 ? "differs" : "differ"} from the recorded ones.`);
  else tell("good", "The story ran to its end, and every answer is as recorded.");
  if (run.wrong && run.wrong.line !== null && byId("text").value === run.text) mark(run.wrong.line, run.wrong.message.replace(/^line \d+, /, ""));
  if (!run.commands.length) return;
  byId("facts").textContent = `seed ${run.seed}, ${run.virtual_seconds.toFixed(1)} virtual seconds, trace ${run.trace_hash}`;
  const before = byId("partition").value;
  const own = run.partitions.filter((name) => !name.startsWith("__")), all = own.length ? own : run.partitions;
  byId("partition").replaceChildren(...all.map((name) => html("option", {}, name)));
  if (all.includes(before)) byId("partition").value = before;
  byId("scrubber").max = run.commands.length - 1;
  byId("transcript").replaceChildren(...run.commands.map(transcribed));
  step(run.wrong ? run.commands.length - 1 : turningPoint());
}

// A story opens where its logs first differ, or where an answer first differs from the recorded one.
function turningPoint() {
  const differs = run.commands.findIndex((each) => each.answer.some(([kind]) => kind !== "same"));
  if (differs >= 0) return differs;
  const fault = run.commands.findIndex((_, index) => marksOf(index).some((each) => each.kind === "fault"));
  return Math.max(0, fault);
}

function transcribed(command, index) {
  const button = html("button", { type: "button" }, command.line);
  button.ariaLabel = `${index + 1}: ${command.line}`;
  button.addEventListener("click", () => step(index));
  const lines = command.answer.map(([kind, line]) => html("span",
    { className: kind, title: { new: "not in the recorded answer", gone: "recorded, and not answered now" }[kind] ?? "" },
    `${{ new: "+ ", gone: "- " }[kind] ?? ""}${line}\n`));
  if (!command.answered) lines.push(html("span", { className: "wrong" }, "no answer: the run ended here"));
  return html("li", {}, button, ...(lines.length ? [html("pre", {}, ...lines)] : []));
}

// Stepping.

const marksOf = (index) => run.marks.slice(index ? run.commands[index - 1].marks : 0, run.commands[index].marks);

function step(index) {
  current = Math.max(0, Math.min(run.commands.length - 1, index));
  const command = run.commands[current];
  byId("scrubber").value = current;
  byId("scrubber").ariaValueText = `${current + 1}: ${command.line}`;
  byId("back").disabled = current === 0;
  byId("on").disabled = current === run.commands.length - 1;
  byId("place").textContent = `${current + 1} of ${run.commands.length}, at ${seconds(command.at)}`;
  byId("command").textContent = command.line;
  byId("prose").textContent = run.commands.slice(0, current + 1).findLast((each) => each.prose)?.prose ?? "";
  for (const [number, line] of [...byId("transcript").children].entries()) line.ariaCurrent = number === current ? "step" : null;
  const shown = byId("transcript").children[current], list = byId("transcript");
  list.scrollTop = shown.offsetTop - list.clientHeight / 3;
  drawLogs();
  explain();
  number();
  if (run.text === byId("text").value && wrong === null) reveal(command.number);
}

function drawLogs() {
  const replicas = lastStates(run.logs.slice(0, run.commands[current].logs), byId("partition").value, run.lanes);
  byId("logs").replaceChildren(replicas.length ? logTable(replicas) : html("p", { className: "faint" }, "There is no partition yet."));
}

function explain() {
  const marks = marksOf(current), told = marks.filter((each) => each.kind !== "news");
  const lines = told.slice(0, MOST_WHYS).map((each) => {
    const line = html("li", {}, html("b", {}, `${seconds(each.at)} ${each.lane} `), spaced(each.why || each.name.replace(/_/g, " ")));
    line.dataset.kind = each.kind;
    return line;
  });
  const others = marks.length - lines.length;
  if (others) lines.push(html("li", { className: "faint" }, `${lines.length ? "and " : ""}${some(others, "other event")}`));
  if (!lines.length) lines.push(html("li", { className: "faint" }, "nothing: the command only looks"));
  byId("why").replaceChildren(...lines);
}

// Links: #NAME, or #NAME?seed=7&bug=KIP-101&text=... with the changed text, compressed.

async function through(stream, data) {
  const output = new Blob([data]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(output).arrayBuffer());
}

async function packed(text) {
  const bytes = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(text));
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(letters).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}

async function unpacked(text) {
  const letters = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  return new TextDecoder().decode(await through(new DecompressionStream("deflate-raw"), bytes));
}

async function share() {
  const text = byId("text").value, facts = new URLSearchParams();
  if (byId("seed").value) facts.set("seed", byId("seed").value);
  if (chosenBug()) facts.set("bug", chosenBug());
  if (text !== original) facts.set("text", await packed(text));
  history.replaceState(null, "", `#${chosen ?? ""}${facts.size ? `?${facts}` : ""}`);
  const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
  byId("shared").textContent = copied ? "The link is copied, and is the address of this page."
    : "The address of this page is now the link.";
}

async function openLink() {
  const [name, facts] = location.hash.slice(1).split("?");
  if (!name) return;
  const given = new URLSearchParams(facts ?? "");
  let text = null;
  try {
    text = given.has("text") ? await unpacked(given.get("text")) : null;
  } catch {
    tell("bad", "The link is damaged: its text cannot be read.");
    return;
  }
  await choose(decodeURIComponent(name), { text, seed: given.get("seed") ?? "", bug: given.get("bug") });
}

byId("filter").addEventListener("input", offer);
byId("text").addEventListener("input", edited);
byId("text").addEventListener("scroll", follow);
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); runText(); }
});
byId("run").addEventListener("click", runText);
byId("reset").addEventListener("click", () => setText(original));
byId("share").addEventListener("click", share);
byId("save").addEventListener("click", () => {
  const url = URL.createObjectURL(new Blob([byId("text").value], { type: "text/plain" }));
  byId("save").href = url;
  setTimeout(() => URL.revokeObjectURL(url), 10000);
});
byId("save").href = "#";
byId("partition").addEventListener("change", drawLogs);
byId("scrubber").addEventListener("input", (event) => step(Number(event.target.value)));
byId("back").addEventListener("click", () => step(current - 1));
byId("on").addEventListener("click", () => step(current + 1));
document.addEventListener("keydown", (event) => {
  if (!run?.commands.length || event.target.matches("input, select, textarea") || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "ArrowRight") step(current + 1);
  if (event.key === "ArrowLeft") step(current - 1);
});
window.addEventListener("hashchange", openLink);

(async () => {
  const answer = await fetch("stories/list");
  if (!answer.ok) { tell("bad", await refusalOf(answer)); return; }
  catalogue = await answer.json();
  edited();
  offer();
  await openLink();
  document.documentElement.dataset.ready = "yes";
})();
