// What the page knows about the model. Other modules are told when it changes.

import { blob, call } from "./api.js";

export const model = {
  name: "", version: null, classes: [], canReject: false, needsToken: false, limits: {},
};

const listeners = [];
export const onChange = (listener) => listeners.push(listener);

export const isEmpty = () => model.version === null;
export const knows = (name) => model.classes.some((known) => known.name === name);

// Reads the model again, and tells the listeners whether another version is live than before.
export async function refreshModel() {
  const [status, { version, classes }] = await Promise.all([
    call("GET", "/v1/status"), call("GET", "/v1/classes"),
  ]);
  const isNew = version !== model.version;
  Object.assign(model, {
    name: status.name,
    version,
    classes,
    canReject: status.can_reject,
    needsToken: status.needs_token_to_read,
    limits: status.limits,
  });
  for (const listener of listeners) await listener(isNew);
}

// Gives an <img> its picture. An <img> cannot send the token, so it may need to be fetched.
export async function setPicture(image, path) {
  if (!model.needsToken) {
    image.src = path;
    return;
  }
  const address = URL.createObjectURL(await blob(path));
  image.addEventListener("load", () => URL.revokeObjectURL(address), { once: true });
  image.src = address;
}
