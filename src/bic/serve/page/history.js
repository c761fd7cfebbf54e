// The history: what was done to the model, and a way back to the versions that are kept.

import { call } from "./api.js";
import { $, announce, confirmed, make, setMessage, show } from "./dom.js";
import { model, refreshModel } from "./model.js";
import { moment, sentenceOf } from "./words.js";

const FEW = 8; // events that are shown at first
const MAKES_VERSION = new Set(["learn", "promote", "adopt"]);
const WORDS = {
  learn: "Learned",
  refuse: "Refused",
  promote: "Made live all the same",
  adopt: "Started",
  "roll back": "Rolled back",
  retire: "Retired",
  rename: "Renamed",
  restore: "Restored",
};
let showsAll = false;

export function setUpHistory() {
  $("more-events").addEventListener("click", async () => {
    showsAll = true;
    await showHistory();
    $("history-title").focus();
  });
}

export async function showHistory() {
  show($("history"), model.version !== null);
  if (model.version === null) return;
  const { version, versions, events } = await call("GET", "/v1/history");
  const newest = [...events].reverse();
  const kept = new Set(versions);
  const rows = [];
  for (const event of newest) {
    const makes = MAKES_VERSION.has(event.action) && kept.has(event.version);
    if (makes) kept.delete(event.version); // one button per version
    rows.push(row(event, { isLive: makes && event.version === version, canReturn: makes }));
  }
  const shown = showsAll ? rows : rows.slice(0, FEW);
  $("events").replaceChildren(...shown);
  show($("more-events"), shown.length < rows.length);
}

function row({ time, action, version, text }, { isLive, canReturn }) {
  const number = make("span", { class: "number" }, `Version ${version}`);
  const what = make("div", { class: "what" }, sentenceOf(`${WORDS[action] ?? action}: ${text}`));
  what.append(" ", make("time", { class: "when", datetime: time }, moment(time)));
  let side = "";
  if (isLive) {
    side = make("span", { class: "mark" }, "live");
  } else if (canReturn) {
    const action = version < model.version ? "Roll back" : "Use again";
    side = make("button", { type: "button", click: () => attempt(version) }, action);
    side.setAttribute("aria-label", `${action}: version ${version}`);
  }
  return make("li", { class: isLive ? "live" : "" }, number, what, side);
}

async function attempt(version) {
  setMessage($("history-message"), "");
  const text = `Version ${version} will answer, and the next lesson builds on it. The other ` +
    "versions are kept, so you can return to them.";
  try {
    if (!(await confirmed(`Make version ${version} live?`, text, `Use version ${version}`))) return;
    await call("POST", "/v1/rollback", { json: { version }, changes: true });
    await refreshModel();
    $("history-title").focus();
    announce(`Version ${version} is live.`);
  } catch (error) {
    setMessage($("history-message"), error.message);
  }
}
