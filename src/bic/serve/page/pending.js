// The next lesson: corrections, and images of classes that are not complete yet.

import { call } from "./api.js";
import { $, announce, confirmed, make, setMessage, show } from "./dom.js";
import { followLesson } from "./lesson.js";
import { plural, sentenceOf } from "./words.js";

export function setUpPending() {
  $("pending-teach").addEventListener("click", () => attempt(teach));
  $("pending-discard").addEventListener("click", () => attempt(discard));
}

export const refreshPending = async () => showPending(await call("GET", "/v1/pending"));

export function showPending({ num_images: total, classes, can_learn: canLearn, message }) {
  show($("pending"), total > 0);
  const items = classes.map(({ name, num_images: images }) =>
    make("li", {}, make("span", { class: "cut" }, name), make("span", {}, `× ${images}`)));
  $("pending-classes").replaceChildren(...items);
  const waiting = `${plural(total, "image waits", "images wait")} to be learned.`;
  $("pending-note").textContent = message ? `Not yet: ${message}.` : waiting;
  $("pending-teach").disabled = !canLearn;
}

// After a call of /v1/learn: the lesson takes the pending images as soon as it starts.
export function takePending(job, pending) {
  if (!job) {
    showPending(pending);
    return;
  }
  show($("pending"), false);
  followLesson(job);
}

async function attempt(action) {
  setMessage($("pending-message"), "");
  try {
    await action();
  } catch (error) {
    setMessage($("pending-message"), error.message);
  }
}

async function teach() {
  const { job, message, pending } = await call("POST", "/v1/learn", {
    form: new FormData(), changes: true,
  });
  takePending(job, pending);
  if (!job) setMessage($("pending-message"), sentenceOf(message));
}

async function discard() {
  const text = "The images that wait are deleted. The model stays as it is.";
  if (!(await confirmed("Discard the next lesson?", text, "Discard"))) return;
  showPending(await call("DELETE", "/v1/pending", { changes: true }));
  announce("The next lesson was discarded.");
  $("teach-title").focus();
}
