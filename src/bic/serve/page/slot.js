// The place for one class of a lesson: a name and images.

import { make } from "./dom.js";
import { dropZone } from "./drop.js";
import { knows } from "./model.js";
import { thumbnail } from "./pictures.js";
import { plural } from "./words.js";

const FEWEST = 2; // different images of a new class
const GOOD = 8; // a handful
let numSlots = 0;

export function newSlot({ onChange, onRemove }) {
  numSlots += 1;
  let images = []; // { file, place }
  const legend = make("legend");
  const remove = make("button", { type: "button", class: "plain remove-slot", click: onRemove });
  remove.textContent = "Remove";
  const name = make("input", {
    id: `name-${numSlots}`, list: "class-names", maxlength: 200, autocomplete: "off",
    placeholder: "for example: cup", input: () => describe(),
  });
  const label = make("label", { class: "name", for: name.id }, "Name", name);
  const zonePlace = make("div");
  const thumbs = make("ul", { class: "thumbs", "aria-label": "Images of the lesson" });
  const enough = make("p", { class: "enough", "aria-live": "polite" });
  const place = make("fieldset", { class: "slot" });
  place.append(legend, remove, label, zonePlace, thumbs, enough);
  const choose = dropZone(zonePlace, {
    text: "Drop images here, or", label: "Images to learn from", isSmall: true, onFiles: add,
  });

  async function add(files, numOthers) {
    const known = new Set(images.map(({ file }) => identity(file)));
    const fresh = files.filter((file) => !known.has(identity(file)));
    images.push(...(await Promise.all(fresh.map(newImage))));
    thumbs.replaceChildren(...images.map((image) => image.place));
    describe(files.length - fresh.length, numOthers);
    onChange();
  }

  async function newImage(file) {
    const image = { file };
    const drop = make("button", { type: "button", "aria-label": `Remove ${file.name}` }, "×");
    drop.addEventListener("click", () => take(image));
    image.place = make("li", {}, await thumbnail(file, 160), drop);
    return image;
  }

  // After an image is removed, the focus goes to the next one, or to the button above.
  function take(image) {
    const index = images.indexOf(image);
    images = images.filter((other) => other !== image);
    image.place.remove();
    const next = images[Math.min(index, images.length - 1)];
    (next ? next.place.querySelector("button") : choose).focus();
    describe();
    onChange();
  }

  function describe(numLeftOut = 0, numOthers = 0) {
    name.removeAttribute("aria-invalid");
    const parts = [];
    if (images.length) parts.push(`${plural(images.length, "image")}.`);
    if (images.length && images.length < GOOD && !knows(name.value.trim())) {
      parts.push(`${GOOD} or more, from different sides, work better.`);
    }
    if (numLeftOut) parts.push(`${plural(numLeftOut, "image was", "images were")} here already.`);
    if (numOthers) parts.push(`${plural(numOthers, "file is", "files are")} not an image.`);
    enough.textContent = parts.join(" ");
  }

  // What is missing and where, or null.
  function problem(slots) {
    const text = name.value.trim();
    const named = (slot) => slot.name.value.trim() === text;
    if (!text) return wrongName("Type a name for the class.");
    if (slots.filter(named).length > 1) return wrongName(`Two classes are called “${text}”.`);
    const fewest = knows(text) ? 1 : FEWEST;
    if (images.length < fewest) {
      return { text: `Give ${plural(fewest, "image")} of “${text}” at least.`, element: choose };
    }
    return null;
  }

  function wrongName(text) {
    name.setAttribute("aria-invalid", "true");
    return { text, element: name };
  }

  return {
    place,
    name,
    problem,
    files: () => images.map(({ file }) => file),
    isBlank: () => images.length === 0 && !name.value.trim(),
    setTitle(text, canRemove) {
      legend.textContent = text || "The class";
      legend.classList.toggle("unseen", !text);
      remove.hidden = !canRemove;
      remove.setAttribute("aria-label", `Remove ${text}`);
    },
  };
}

const identity = ({ name, size, lastModified }) => `${name} ${size} ${lastModified}`;
