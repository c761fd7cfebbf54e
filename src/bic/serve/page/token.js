// The token that calls which change something need. It lives in this tab until the tab is closed.

import { $, setMessage } from "./dom.js";

const KEY = "bic token";

export const token = () => sessionStorage.getItem(KEY);
export const forgetToken = () => sessionStorage.removeItem(KEY);

// The server may print a link that ends in #token=…. It must not stay in the address.
export function takeTokenFromAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!found) return;
  sessionStorage.setItem(KEY, found);
  history.replaceState(null, "", location.pathname + location.search);
}

// Two calls at once must not open two dialogs.
let asking = null;

// Asks for the token. Resolves to whether one was given.
export function askToken(problem = "") {
  asking ??= openDialog(problem).finally(() => {
    asking = null;
  });
  return asking;
}

function openDialog(problem) {
  const dialog = $("token");
  const input = $("token-value");
  setMessage($("token-message"), problem);
  input.value = "";
  dialog.returnValue = "no";
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    const close = () => {
      const given = input.value.trim();
      const isGiven = dialog.returnValue === "yes" && given !== "";
      if (isGiven) sessionStorage.setItem(KEY, given);
      input.value = "";
      resolve(isGiven);
    };
    dialog.addEventListener("close", close, { once: true });
  });
}
