// Calls of the server. A refused call raises Refused with the server's own sentence.

import { askToken, forgetToken, token } from "./token.js";
import { sentenceOf } from "./words.js";

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

const NEEDS_TOKEN = 401;
const WRONG = "The server does not know this token. Copy all of it.";
const OFFLINE = "The server does not answer. Check that bic serve is running.";

// The answer's JSON. With `changes` the call needs the token: the user is
// asked for it before anything is sent, and again if the server refuses it.
export async function call(method, path, { form, json, changes = false } = {}) {
  if (changes && !token() && !(await askToken())) throw cancelled();
  for (;;) {
    const used = token();
    const response = await send(method, path, { form, json });
    if (response.ok) return response.json();
    if (response.status !== NEEDS_TOKEN) throw await refusal(response);
    if (used === token()) forgetToken();
    if (!token() && !(await askToken(used ? WRONG : ""))) throw cancelled();
  }
}

// The bytes of a picture. An <img> could not send the token.
export async function blob(path) {
  const response = await send("GET", path);
  if (!response.ok) throw await refusal(response);
  return response.blob();
}

async function send(method, path, { form, json } = {}) {
  const headers = {};
  if (token()) headers.Authorization = `Bearer ${token()}`;
  if (json) headers["Content-Type"] = "application/json";
  const body = json ? JSON.stringify(json) : form;
  try {
    return await fetch(path, { method, body, headers, cache: "no-store" });
  } catch {
    throw new Refused(0, OFFLINE);
  }
}

const cancelled = () => new Refused(NEEDS_TOKEN, "Nothing was changed: this needs the token.");

async function refusal(response) {
  // An answer without a problem comes from something else, such as a proxy.
  let text = `The server answered with an error (${response.status}). Try again.`;
  try {
    const { problem, remedy } = (await response.json()).error;
    text = sentenceOf(`${problem}; ${remedy}`);
  } catch {
    // Not JSON.
  }
  return new Refused(response.status, text);
}
