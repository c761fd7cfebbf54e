// The classes: pictures, and how reliable each is on its held-out images.

import { call } from "./api.js";
import { $, announce, confirmed, make, setMessage, show } from "./dom.js";
import { model, refreshModel, setPicture } from "./model.js";
import { plural, reliability } from "./words.js";

const PAGE = 24; // classes that are shown at first, and added with each "show more"
const MANY = 9; // classes from which on a search helps
const SUGGESTED = 500; // class names that the inputs suggest
let numShown = PAGE;

export function setUpClasses() {
  $("find-class").addEventListener("input", () => {
    numShown = PAGE;
    draw();
  });
  $("more-classes").addEventListener("click", () => {
    const first = numShown;
    numShown += PAGE;
    draw();
    $("class-list").children[first]?.querySelector("button").focus();
  });
}

export function showClasses() {
  show($("classes"), model.classes.length > 0);
  show($("find"), model.classes.length > MANY);
  const suggested = model.classes.slice(0, SUGGESTED);
  const options = suggested.map(({ name }) => make("option", { value: name }));
  $("class-names").replaceChildren(...options);
  draw();
}

function draw() {
  const wanted = $("find-class").value.trim().toLowerCase();
  const found = model.classes.filter(({ name }) => name.toLowerCase().includes(wanted));
  const shown = found.slice(0, numShown);
  $("class-list").replaceChildren(...shown.map(card));
  show($("more-classes"), found.length > shown.length);
  $("class-count").textContent = found.length < model.classes.length
    ? `${found.length} of ${plural(model.classes.length, "class", "classes")}`
    : plural(model.classes.length, "class", "classes");
}

function card({ name, seen, accuracy, thumbnails }) {
  const pictures = make("div", { class: "pictures" });
  for (const path of thumbnails) {
    const image = make("img", { alt: "", loading: "lazy", width: 64, height: 64 });
    image.addEventListener("error", () => image.remove());
    setPicture(image, path).catch(() => image.remove());
    pictures.append(image);
  }
  const { word, kind, text } = reliability(accuracy);
  const retire = make("button", {
    type: "button", class: "plain", "aria-label": `Retire ${name}`, click: () => attempt(name),
  }, "Retire");
  const learned = `${plural(seen, "image")} learned`;
  const title = make("h3", { class: "cut", title: name }, name);
  return make(
    "li", { class: "card" },
    pictures,
    make("div", { class: "head" }, title, make("span", { class: `badge ${kind}` }, word)),
    accuracy ? range(accuracy) : "",
    make("p", {}, text),
    make("div", { class: "foot" }, make("p", {}, learned), retire),
  );
}

// The interval as a bar, and the accuracy as a dot. The text next to it says the same.
function range({ value, low, high }) {
  const span = make("span", { class: "span" });
  span.style.left = `${100 * low}%`;
  span.style.width = `${100 * (high - low)}%`;
  const dot = make("span", { class: "dot" });
  dot.style.left = `${100 * value}%`;
  return make("div", { class: "range", "aria-hidden": "true" }, span, dot);
}

async function attempt(name) {
  setMessage($("classes-message"), "");
  const text = "It is never an answer again, and its images are deleted from every version. " +
    "Rolling back does not bring it back.";
  try {
    if (!(await confirmed(`Retire “${name}”?`, text, "Retire"))) return;
    await call("POST", "/v1/retire", { json: { classes: [name] }, changes: true });
    await refreshModel();
    $("classes-title").focus();
    announce(`${name} was retired.`);
  } catch (error) {
    setMessage($("classes-message"), error.message);
  }
}
