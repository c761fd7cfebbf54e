// Asking: images in, answers with bars out, and a form to correct a wrong answer.

import { call } from "./api.js";
import { correctionForm, saidBefore } from "./correct.js";
import { $, announce, make, setMessage, show } from "./dom.js";
import { dropZone } from "./drop.js";
import { model } from "./model.js";
import { isImage, thumbnail, toSend } from "./pictures.js";
import { percent, plural } from "./words.js";

const MOST = 12; // answers on the page
const AT_ONCE = 8; // images of one call
const TOP = 5;

let items = []; // the newest first: { file, said, body, place }, `said` by a correction

export function setUpAsking() {
  const text = "Drop an image here, paste it, or";
  const options = { text, label: "Images to ask about", onFiles: add };
  dropZone($("ask-drop"), options);
  $("reject").addEventListener("change", () => {
    explainReject();
    askAgain();
  });
  explainReject();
  addEventListener("paste", (event) => {
    const images = [...(event.clipboardData?.files ?? [])].filter(isImage);
    if (images.length && !$("ask").hidden) add(images);
  });
}

// Without held-out images there is no threshold for "none of these".
export const showRejectOption = () => show($("ask-options"), model.canReject);

function explainReject() {
  const share = Number($("reject").value);
  $("reject-note").textContent = share
    ? `About ${Math.round(100 * share)} in 100 images of known classes then get it wrongly.`
    : "The model always names a class, also for things that it has never seen.";
}

async function add(files, numOthers = 0) {
  const others = numOthers ? `${plural(numOthers, "file is", "files are")} not an image.` : "";
  setMessage($("ask-message"), others);
  const added = await Promise.all(files.slice(0, MOST).map(newItem));
  if (files.length > MOST) {
    setMessage($("ask-message"), `Only the first ${MOST} images are asked about.`);
  }
  items = [...added, ...items].slice(0, MOST);
  $("answers").replaceChildren(...items.map(({ place }) => place));
  await ask(added);
}

async function newItem(file) {
  const picture = await thumbnail(file, 320);
  const body = make("div", {}, make("p", { class: "sure" }, "Looking …"));
  const caption = make("p", { class: "file" }, file.name);
  const shown = make("div", {}, make("div", { class: "shown" }, picture), caption);
  return { file, body, said: null, place: make("li", {}, shown, body) };
}

// The images on the page, for a new version or another threshold.
export const askAgain = () => ask(items);

async function ask(asked) {
  for (let start = 0; start < asked.length; start += AT_ONCE) {
    const group = asked.slice(start, start + AT_ONCE);
    try {
      await askGroup(group);
    } catch (error) {
      for (const { body } of asked.slice(start)) {
        body.replaceChildren(make("p", { class: "sure" }, "No answer."));
      }
      setMessage($("ask-message"), error.message);
      return;
    }
  }
}

async function askGroup(group) {
  const form = new FormData();
  for (const { file } of group) form.append("images", await toSend(file), file.name);
  const reject = $("reject").value;
  const query = reject && model.canReject ? `top=${TOP}&reject=${reject}` : `top=${TOP}`;
  const { predictions, version } = await call("POST", `/v1/predict?${query}`, { form });
  predictions.forEach((prediction, index) => {
    showAnswer(group[index], prediction, version);
  });
  announce(predictions.map(spoken).join(" "));
}

const spoken = ({ name, is_none: isNone, classes }) => {
  const [first] = classes;
  if (isNone) return `${name}: none of these.`;
  return `${name}: ${first.name}, ${percent(first.probability)} sure.`;
};

function showAnswer(item, { is_none: isNone, classes }, version) {
  const [first] = classes;
  const title = make("h3", { class: "answer-name cut" }, isNone ? "None of these" : first.name);
  const sure = isNone
    ? "It looks like no class that the model knows. The closest:"
    : `${percent(first.probability)} sure`;
  item.body.replaceChildren(
    title,
    make("p", { class: "sure", title: `version ${version}` }, sure),
    bars(classes, isNone),
    item.said ? saidBefore(item.said, isNone ? null : first.name) : correctionForm(item, isNone),
  );
}

function bars(classes, isNone) {
  const list = make("ol", { class: "bars", "aria-label": "Probabilities" });
  list.classList.toggle("rejected", isNone);
  for (const { name, probability } of classes) {
    const fill = make("i");
    fill.style.width = `${100 * probability}%`;
    list.append(make(
      "li", {},
      make("span", { class: "label", title: name }, name),
      make("span", { class: "track", "aria-hidden": "true" }, fill),
      make("span", { class: "value" }, percent(probability)),
    ));
  }
  return list;
}
