// The start of the page, and its parts put together.

import { call } from "./api.js";
import { askAgain, setUpAsking, showRejectOption } from "./ask.js";
import { setUpClasses, showClasses } from "./classes.js";
import { $, setMessage, show } from "./dom.js";
import { setUpHistory, showHistory } from "./history.js";
import { followRunningLessons, setUpLessons } from "./lesson.js";
import { isEmpty, model, onChange, refreshModel } from "./model.js";
import { refreshPending, setUpPending } from "./pending.js";
import { fitToModel, setUpTeaching } from "./teach.js";
import { takeTokenFromAddress } from "./token.js";
import { listed, plural } from "./words.js";

function showHeadline() {
  const names = model.classes.map(({ name }) => name);
  document.title = `${model.name}: bic`;
  $("model-name").textContent = model.name;
  if (isEmpty()) {
    $("headline").textContent = "This model knows nothing yet.";
    $("lead").textContent =
      "Teach it two kinds of things to tell apart. It learns from a handful of images of each, " +
      "and more can follow at any time.";
    return;
  }
  $("headline").textContent =
    `This model knows ${plural(names.length, "class", "classes")}: ${listed(names)}.`;
  $("lead").textContent =
    "Show it an image and see what it thinks. Teach it something new when you like: it keeps " +
    "what it knows.";
}

function showParts() {
  show($("desk"));
  show($("ask"), !isEmpty());
  show($("sections"), !isEmpty());
  $("desk").classList.toggle("first", isEmpty());
}

async function whenModelChanges(isNew) {
  showHeadline();
  showParts();
  showRejectOption();
  fitToModel();
  showClasses();
  await showHistory();
  if (isNew && !isEmpty()) await askAgain();
}

function setUpTheme() {
  const isDark = () => getComputedStyle(document.body).backgroundColor === "rgb(16, 19, 22)";
  $("theme").addEventListener("click", () => {
    document.documentElement.style.colorScheme = isDark() ? "light" : "dark";
  });
}

async function start() {
  takeTokenFromAddress();
  addEventListener("hashchange", takeTokenFromAddress);
  setUpTheme();
  setUpAsking();
  setUpTeaching();
  setUpPending();
  setUpClasses();
  setUpHistory();
  setUpLessons(refreshPending);
  onChange(whenModelChanges);
  await refreshModel();
  await refreshPending();
  await followRunningLessons();
  document.addEventListener("visibilitychange", catchUp);
}

// Something may have changed while the page was in the background.
async function catchUp() {
  if (document.hidden) return;
  try {
    const { version } = await call("GET", "/v1/status");
    if (version !== model.version) await refreshModel();
    await refreshPending();
    await followRunningLessons();
  } catch {
    // The next thing that the user does says what is wrong.
  }
}

start().catch((error) => {
  $("headline").textContent = "The model cannot be shown.";
  setMessage($("problem"), error.message);
});
