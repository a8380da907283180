// SPDX-License-Identifier: Apache-2.0
// What the other files share. Nothing recorded becomes markup here: what is put into the page comes
// as HTML that the server has escaped, or as text.
"use strict";

const TH = {
  // Set by the other files.
  list: null, pane: null, axis: null, live: null,

  one(selector, within = document) { return within.querySelector(selector); },
  all(selector, within = document) { return [...within.querySelectorAll(selector)]; },

  // The nodes of a fragment; scripts in it would not run.
  async nodes(url, signal) {
    const answer = await fetch(url, { signal, headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(`${answer.status} for ${url}`);
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    TH.times(parsed);
    return [...parsed.body.childNodes];
  },

  async json(url) {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`${answer.status} for ${url}`);
    return answer.json();
  },

  // Tells who listens to a screen reader.
  say(text) {
    if (!TH.said) {
      TH.said = document.createElement("div");
      TH.said.className = "visually-hidden";
      TH.said.setAttribute("role", "status");
      document.body.append(TH.said);
    }
    TH.said.textContent = text;
  },

  make(name, properties = {}, ...children) {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  },

  // As otel_taskhistory.text.duration.
  duration(ms) {
    if (ms < 999.5) return ms >= 0.95 || ms === 0 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`;
    const seconds = ms / 1000;
    if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
    const whole = Math.round(seconds);
    const two = (number) => String(number).padStart(2, "0");
    const minutes = Math.floor(whole / 60);
    if (minutes < 60) return `${minutes}m ${two(whole % 60)}s`;
    const hours = Math.floor(minutes / 60);
    if (hours < 24) return `${hours}h ${two(minutes % 60)}m`;
    return `${Math.floor(hours / 24)}d ${hours % 24}h`;
  },

  // As otel_taskhistory.text.count.
  count(number, noun) { return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`; },

  statuses: ["running", "succeeded", "failed", "cancelled", "interrupted"],
};
