// A place for images: drop them, choose files, or take a photo.

import { takePhoto } from "./camera.js";
import { make } from "./dom.js";
import { isImage } from "./pictures.js";

const isTouch = matchMedia("(pointer: coarse)").matches;
document.documentElement.classList.toggle("touch", isTouch);

// `onFiles(files, numOthers)` gets the images and the number of files that are none.
export function dropZone(element, { text, label, isSmall = false, onFiles }) {
  const give = (files) => {
    const images = [...files].filter(isImage);
    if (files.length) onFiles(images, files.length - images.length);
  };
  const chooser = fileInput({ multiple: true }, give);
  const choose = make("button", { type: "button", click: () => chooser.click() }, "Choose images");
  const buttons = make("div", { class: "buttons" }, choose, chooser);
  addCamera(buttons, give);
  const hint = make("p", { class: "mouse" }, text);
  const zone = make(
    "div", { class: isSmall ? "drop small" : "drop", role: "group", "aria-label": label },
    hint, buttons,
  );
  acceptDrops(zone, give);
  element.replaceChildren(zone);
  return choose;
}

function fileInput(attributes, give) {
  const input = make("input", { type: "file", accept: "image/*", hidden: true, ...attributes });
  input.addEventListener("change", () => {
    give(input.files);
    input.value = ""; // the same file can be chosen again
  });
  return input;
}

// A phone has an app for its camera; on a computer, the page shows what the camera sees.
function addCamera(buttons, give) {
  const photograph = make("button", { type: "button" }, "Take a photo");
  if (isTouch) {
    const camera = fileInput({ capture: "environment" }, give);
    photograph.addEventListener("click", () => camera.click());
    buttons.append(photograph, camera);
  } else if (navigator.mediaDevices?.getUserMedia) {
    photograph.addEventListener("click", async () => {
      const photo = await takePhoto();
      if (photo) give([photo]);
    });
    buttons.append(photograph);
  }
}

function acceptDrops(zone, give) {
  let depth = 0; // dragenter and dragleave are also sent for the elements inside
  const mark = (change) => {
    depth = Math.max(0, depth + change);
    zone.classList.toggle("over", depth > 0);
  };
  zone.addEventListener("dragenter", () => mark(1));
  zone.addEventListener("dragleave", () => mark(-1));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    mark(-depth);
    give(event.dataTransfer.files);
  });
}

// A file that misses its place must not replace the page.
for (const name of ["dragover", "drop"]) {
  addEventListener(name, (event) => event.preventDefault());
}
