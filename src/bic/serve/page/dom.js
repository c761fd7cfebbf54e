// Elements, and what is said to a screen reader. Text from the server is only ever set as text.

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const show = (element, isShown = true) => {
  element.hidden = !isShown;
};

// The region is emptied first, because the same text set again would not be read.
export function announce(text) {
  const region = $("announcer");
  region.textContent = "";
  setTimeout(() => {
    region.textContent = text;
  }, 60);
}

// A message under a form: an error, or what has happened.
export function setMessage(element, text, kind = "error") {
  element.textContent = text;
  element.className = `message ${kind}`;
  element.hidden = !text;
}

// Asks a question in a dialog. Resolves to whether the answer was yes.
export function confirmed(title, text, action) {
  const dialog = $("confirm");
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = action;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
