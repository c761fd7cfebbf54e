// Lessons that are learned: progress, time left, and what came of it.

import { call } from "./api.js";
import { $, announce, make, setMessage, show } from "./dom.js";
import { refreshModel } from "./model.js";
import { duration, listed, percent, plural, sentenceOf } from "./words.js";

const PAUSE = 700; // milliseconds between two looks at a lesson
const PHASES = {
  waiting: "Waiting until the model is free",
  starting: "Getting ready",
  reading: "Reading the images",
  training: "Learning",
  judging: "Testing on held-out images",
  finished: "Finished",
};
const TITLES = {
  done: "Learned",
  failed: "The lesson failed",
  refused: "Not taken over",
  cancelled: "Cancelled",
};
const isRunning = ({ state }) => state === "queued" || state === "running";
const followed = new Set();
let whenPendingChanges = () => {};

// A lesson takes the pending images when it starts, and gives them back if it is cancelled.
export function setUpLessons(onPendingChange) {
  whenPendingChanges = onPendingChange;
}

// Lessons that were started before the page was opened.
export async function followRunningLessons() {
  const { jobs } = await call("GET", "/v1/jobs");
  for (const job of jobs.filter(isRunning).reverse()) followLesson(job, { moveFocus: false });
}

export async function followLesson(first, { moveFocus = true } = {}) {
  if (followed.has(first.id)) return;
  followed.add(first.id);
  const view = lessonView(first);
  for (const ended of $("lesson").querySelectorAll("[data-state]")) ended.remove();
  $("lesson").append(view.place);
  if (moveFocus) view.title.focus();
  let job = first;
  while (isRunning(job)) {
    showProgress(view, job);
    await new Promise((done) => setTimeout(done, PAUSE));
    const before = job.state;
    job = await look(view, job);
    if (job.state !== before) await whenPendingChanges();
  }
  followed.delete(job.id);
  showEnd(view, job);
  await refreshModel();
}

// The state of the lesson. If the server does not answer, the last known one.
async function look(view, job) {
  try {
    const answer = await call("GET", `/v1/jobs/${encodeURIComponent(job.id)}`);
    setMessage(view.message, "");
    return answer;
  } catch (error) {
    setMessage(view.message, error.message);
    return error.status === 404 ? { ...job, state: "failed", message: error.message } : job;
  }
}

function lessonView({ id, classes, num_images: numImages }) {
  const title = make("h3", { tabindex: "-1" }, `A lesson on ${listed(classes)}`);
  const images = make("p", {}, plural(numImages, "image"));
  const bar = make("progress", { max: 1, "aria-label": "Progress of the lesson" });
  const phase = make("p", { class: "phase" });
  const message = make("p", { class: "message", role: "alert", hidden: true });
  const cancel = make("button", { type: "button" }, "Cancel");
  const buttons = make("div", { class: "buttons" }, cancel);
  const place = make("div", { class: "job", role: "group", "aria-label": "A lesson" });
  place.append(title, images, bar, phase, buttons, message);
  cancel.addEventListener("click", async () => {
    cancel.disabled = true;
    try {
      await call("DELETE", `/v1/jobs/${encodeURIComponent(id)}`, { changes: true });
    } catch (error) {
      setMessage(message, error.message);
      cancel.disabled = false;
    }
  });
  return { place, title, images, bar, phase, message, buttons, said: "" };
}

function showProgress(view, { phase, share, seconds_left: left }) {
  const name = PHASES[phase] ?? phase;
  if (share > 0) view.bar.value = share;
  const time = left === null ? "" : `, about ${duration(left)} left`;
  view.phase.textContent = share > 0 ? `${name}: ${percent(share)}${time}` : `${name} …`;
  // A screen reader hears each phase, and every quarter of the training, once.
  const quarter = phase === "training" ? Math.floor(share * 4) : 0;
  const milestone = `${phase} ${quarter}`;
  if (milestone !== view.said) announce(view.phase.textContent);
  view.said = milestone;
}

function showEnd(view, job) {
  const { state, message, report } = job;
  const isLearned = state === "done";
  const hadFocus = view.place.contains(document.activeElement);
  view.place.setAttribute("data-state", state);
  view.bar.remove();
  view.images.remove();
  view.title.textContent = titleOf(job);
  view.phase.textContent = isLearned ? judged(report) : sentenceOf(message);
  show(view.phase, view.phase.textContent !== "");
  const dismiss = make("button", { type: "button", click: () => {
    view.place.remove();
    $("teach-title").focus();
  } }, "Close");
  const actions = [...nextSteps(view, job), dismiss];
  view.buttons.replaceChildren(...actions);
  if (hadFocus) view.title.focus();
  announce(`${view.title.textContent}. ${view.phase.textContent}`);
}

function titleOf({ state, version, classes, report }) {
  if (state !== "done") return `${TITLES[state] ?? state}: ${listed(classes)}`;
  if (report && !report.is_changed) return "There was nothing new to learn";
  return `Learned ${listed(classes)}: version ${version}`;
}

// What the held-out images say about the lesson.
function judged(report) {
  if (!report) return "";
  if (report.note) return sentenceOf(report.note);
  const { new_after: fresh, old_before: before, old_after: after } = report;
  const parts = [];
  if (fresh) parts.push(`new classes ${fresh.correct} of ${fresh.total} right`);
  if (before && after) {
    const change = `${before.correct} of ${before.total} before, ${after.correct} now`;
    parts.push(`old classes ${change}`);
  }
  return parts.length ? `On held-out images: ${parts.join("; ")}.` : "";
}

function nextSteps(view, { id, state, can_retry: canRetry }) {
  if (state === "done") {
    const go = () => {
      view.place.remove();
      $("ask").scrollIntoView({ block: "nearest" });
      $("ask-drop").querySelector("button").focus();
    };
    return [make("button", { type: "button", class: "primary", click: go }, "Try it")];
  }
  if (!canRetry) return [];
  const label = state === "refused" ? "Use it all the same" : "Try again";
  const again = make("button", { type: "button", class: "primary" }, label);
  again.addEventListener("click", async () => {
    try {
      const json = { force: state === "refused" };
      const path = `/v1/jobs/${encodeURIComponent(id)}/retry`;
      const { job } = await call("POST", path, { json, changes: true });
      view.place.remove();
      followLesson(job);
    } catch (error) {
      setMessage(view.message, error.message);
    }
  });
  return [again];
}
