// Numbers in words.

export const plural = (count, one, many = `${one}s`) =>
  `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

export function percent(share) {
  if (share > 0 && share < 0.01) return "< 1\u00a0%";
  if (share < 1 && share > 0.99) return "> 99\u00a0%";
  return `${Math.round(100 * share)}\u00a0%`;
}

// "a, b and c", or "a, b and 7 more".
export function listed(names, most = 4) {
  if (names.length === 0) return "";
  const shown = names.length > most ? names.slice(0, most - 1) : names.slice(0, -1);
  const last = names.length > most ? `${names.length - shown.length} more` : names.at(-1);
  return shown.length ? `${shown.join(", ")} and ${last}` : last;
}

export function duration(seconds) {
  if (seconds < 10) return "a few seconds";
  if (seconds < 55) return `${Math.ceil(seconds / 5) * 5} seconds`;
  const minutes = Math.max(1, Math.round(seconds / 60));
  if (minutes < 60) return plural(minutes, "minute");
  const hours = Math.floor(minutes / 60);
  return minutes % 60 ? `${plural(hours, "hour")} ${minutes % 60} min` : plural(hours, "hour");
}

export function moment(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  return date.toLocaleString("en", {
    day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
    hour12: false,
  });
}

// What the held-out images say about a class: a word, and a sentence with the 95 % interval.
export function reliability(accuracy) {
  if (!accuracy) return { word: "not tested", kind: "unknown", text: "No image was held out." };
  const { correct, total, low, high } = accuracy;
  const images = plural(total, "held-out image");
  const range = `${Math.round(100 * low)} to ${Math.round(100 * high)}\u00a0%`;
  const text = `${correct} of ${images} right; in use, expect ${range}.`;
  if (high - low > 0.6) return { word: "too early to say", kind: "unknown", text };
  if (low >= 0.75) return { word: "reliable", kind: "good", text };
  if (correct / total >= 0.75) return { word: "mostly right", kind: "good", text };
  if (high < 0.5) return { word: "mostly wrong", kind: "bad", text };
  return { word: "often wrong", kind: "fair", text };
}

// A text of the server, which starts with a small letter and has no full stop.
export const sentenceOf = (text) =>
  text && text[0].toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");
