// "This is a …": a wrong answer becomes an image of the next lesson.

import { call } from "./api.js";
import { announce, make, setMessage } from "./dom.js";
import { showPending } from "./pending.js";
import { toSend } from "./pictures.js";

let numForms = 0;

// `isNone`: the answer was "none of these".
export function correctionForm(item, isNone) {
  const place = make("div", { class: "correct" });
  const open = make("button", { type: "button", class: "plain" });
  open.textContent = isNone ? "Say what it is" : "Wrong? Correct it";
  const close = () => {
    place.replaceChildren(open);
    open.focus();
  };
  open.addEventListener("click", () => {
    const form = fields(item, close);
    place.replaceChildren(form);
    form.querySelector("input").focus();
  });
  place.append(open);
  return place;
}

function fields(item, close) {
  numForms += 1;
  const id = `correction-${numForms}`;
  const input = make("input", {
    id, list: "class-names", maxlength: 200, required: true, autocomplete: "off",
  });
  const message = make("p", { class: "message", role: "alert", hidden: true });
  const save = make("button", { type: "submit", class: "primary" }, "Correct");
  const cancel = make("button", { type: "button", click: close }, "Cancel");
  const form = make(
    "form", { novalidate: true },
    make("label", { for: id }, "This is a"), input, save, cancel, message,
  );
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = input.value.trim();
    if (!name) {
      setMessage(message, "Type the name of the class.");
      input.focus();
      return;
    }
    save.disabled = true;
    try {
      await send(item, name);
    } catch (error) {
      setMessage(message, error.message);
      save.disabled = false;
    }
  });
  return form;
}

// In place of the form, when an image that was corrected is asked about again.
export function saidBefore(name, answer) {
  const noted = make("p", { class: "noted" }, "You said: ");
  noted.append(make("strong", {}, name), answer === name ? ". Now the model agrees." : ".");
  return make("div", { class: "correct" }, noted);
}

async function send(item, name) {
  const form = new FormData();
  form.append("image", await toSend(item.file), item.file.name);
  form.append("class_name", name);
  const { pending } = await call("POST", "/v1/corrections", { form, changes: true });
  item.said = name;
  showPending(pending);
  const noted = make("p", { class: "noted", tabindex: "-1" }, "Noted: ");
  noted.append(make("strong", {}, name), ". It joins ");
  noted.append(make("a", { href: "#teach" }, "the next lesson"), ".");
  item.body.querySelector(".correct").replaceChildren(noted);
  noted.focus();
  announce(`Noted: ${name}. It joins the next lesson.`);
}
