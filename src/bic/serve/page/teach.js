// Teaching: names and images of one or more classes become a lesson.

import { call } from "./api.js";
import { $, setMessage, show } from "./dom.js";
import { isEmpty, model } from "./model.js";
import { toSend } from "./pictures.js";
import { takePending } from "./pending.js";
import { newSlot } from "./slot.js";
import { plural, sentenceOf } from "./words.js";

const FIRST = 2; // classes that an empty model needs
let slots = [];

export function setUpTeaching() {
  $("teach-form").addEventListener("submit", (event) => {
    event.preventDefault();
    teach();
  });
  $("add-slot").addEventListener("click", () => addSlot().name.focus());
  startOver();
}

// As many places for classes as the model needs.
export function fitToModel() {
  const needed = isEmpty() ? FIRST : 1;
  const used = slots.filter((slot) => !slot.isBlank());
  if (used.length === 0 && slots.length !== needed) startOver();
  $("teach-title").textContent = isEmpty() ? "Teach it the first two classes" : "Teach it a class";
  $("teach-note").textContent = isEmpty()
    ? "A class is a kind of thing, such as “cup”. Give each a name and a handful of images."
    : "Give it a name and a handful of images. A name that it knows already gets more images.";
  label();
}

function startOver() {
  slots = [];
  $("slots").replaceChildren();
  for (let index = 0; index < (isEmpty() ? FIRST : 1); index += 1) addSlot();
}

function addSlot() {
  const slot = newSlot({ onChange: label, onRemove: () => removeSlot(slot) });
  slots.push(slot);
  $("slots").append(slot.place);
  label();
  return slot;
}

function removeSlot(slot) {
  slots = slots.filter((other) => other !== slot);
  slot.place.remove();
  label();
  $("add-slot").focus();
}

function label() {
  const needed = isEmpty() ? FIRST : 1;
  slots.forEach((slot, index) => {
    slot.setTitle(slots.length > 1 ? `Class ${index + 1}` : "", slots.length > needed);
  });
  const numClasses = slots.length;
  $("teach-submit").textContent = numClasses > 1 ? `Teach ${numClasses} classes` : "Teach";
  show($("add-slot"), numClasses < (model.limits.classes ?? 10));
}

async function teach() {
  const message = $("teach-message");
  setMessage(message, "");
  const wrong = slots.map((slot) => slot.problem(slots)).find(Boolean);
  if (wrong) {
    setMessage(message, wrong.text);
    wrong.element.focus();
    return;
  }
  const numImages = slots.reduce((total, slot) => total + slot.files().length, 0);
  if (numImages > model.limits.files) {
    setMessage(message, `A lesson has at most ${model.limits.files} images, not ${numImages}.`);
    return;
  }
  const button = $("teach-submit");
  button.disabled = true;
  setMessage(message, `Sending ${plural(numImages, "image")} …`, "quiet");
  try {
    await send(message);
  } catch (error) {
    setMessage(message, error.message);
  } finally {
    button.disabled = false;
  }
}

async function send(message) {
  const form = new FormData();
  for (const slot of slots) {
    for (const file of slot.files()) {
      form.append("images", await toSend(file), file.name);
      form.append("class_name", slot.name.value.trim());
    }
  }
  const size = form.getAll("images").reduce((total, file) => total + file.size, 0);
  if (size > model.limits.upload_bytes) throw new Error(tooLarge(size));
  const { job, message: text, pending } = await call("POST", "/v1/learn", { form, changes: true });
  startOver();
  takePending(job, pending);
  setMessage(message, job ? "" : sentenceOf(text), "done");
}

const megabytes = (bytes) => `${Math.ceil(bytes / 1e6)} MB`;

function tooLarge(size) {
  const most = megabytes(model.limits.upload_bytes);
  return `The images have ${megabytes(size)}, and ${most} can be sent. Teach some of them first.`;
}
