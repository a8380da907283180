// The axis of time: every step and call as a bar in its real proportion, pictures at their time.
// The numbers come as arrays (see otel_taskhistory.pages.axis) and are drawn on a canvas.

{
  const section = TH.one("#axis");
  const WIDE = 8; // numbers of a bar
  const [KIND, NAME, AGENT, STATUS, AT, LONG, STEP, LANE] = Array(WIDE).keys();
  const RULER = 20, STEP_HIGH = 18, CALL_HIGH = 9, GAP = 2, LABEL_HIGH = 16, BETWEEN = 6;
  const TILE = 104, SPACE = 6;
  const FAILED = 2, INTERRUPTED = 4;

  if (section && TH.list) {
    const canvas = TH.one("canvas", section);
    const box = TH.one("#bars", section);
    const strip = TH.one("#strip", section);
    const pen = canvas.getContext("2d");
    let data = null;
    let loading = null;
    let view = { from: 0, to: 1 };
    let rows = new Map(); // by agent: where its lanes begin
    let chosen = -1;
    let high = 0;
    let tops = null;

    const load = async () => {
      const text = section.dataset.json;
      return text ? JSON.parse(text) : TH.json(section.dataset.axis);
    };

    const prepare = (fresh) => {
      const whole = !data || (view.from <= 0 && view.to >= data.length);
      data = fresh;
      data.length = Math.max(data.length, 1);
      data.bad = new Set();
      for (let at = 0; at < data.bars.length; at += WIDE) {
        const status = data.bars[at + STATUS];
        if (data.bars[at + KIND] === 0 && (status === FAILED || status === INTERRUPTED)) {
          data.bad.add(data.bars[at + STEP]);
        }
      }
      if (whole) view = { from: 0, to: data.length };
      rows = new Map();
      high = RULER;
      const several = data.agents.length > 1;
      data.agents.forEach(([name, depth, steps, calls], number) => {
        const label = several ? LABEL_HIGH : 0;
        rows.set(number, {
          name, depth, label: several ? high : -1,
          steps: high + label,
          calls: high + label + steps * (STEP_HIGH + GAP),
        });
        high += label + steps * (STEP_HIGH + GAP) + calls * (CALL_HIGH + GAP) + BETWEEN;
      });
      chosen = data.ids.indexOf(TH.pane.id);
      note();
      section.dataset.ready = "1";
    };

    const note = () => {
      const [calls, shots] = data.left_out;
      const parts = [];
      if (calls) parts.push(`not drawn: ${TH.count(calls, "call")}`);
      if (shots) parts.push(`only under “All pictures”: ${TH.count(shots, "picture")}`);
      const element = TH.one("#axis-note", section);
      element.hidden = !parts.length;
      element.textContent = parts.join("; ");
      const failed = data.bad.size ? `, ${data.bad.size} of them failed` : "";
      canvas.setAttribute("aria-label",
        `${TH.count(data.ids.length, "step")}${failed}, in ${TH.duration(data.length)}. ` +
        "The steps are in the list below; what took longest is under “Longest first”.");
    };

    const colour = (name) => getComputedStyle(section).getPropertyValue(name).trim();
    const scale = () => canvas.clientWidth / (view.to - view.from);
    const end = (at) => (data.bars[at + LONG] < 0
      ? Math.max(data.now ?? data.length, data.bars[at + AT]) : data.bars[at + AT] + data.bars[at + LONG]);
    const place = (at) => {
      const row = rows.get(data.bars[at + AGENT]);
      const lane = data.bars[at + LANE];
      return data.bars[at + KIND] === 0
        ? [row.steps + lane * (STEP_HIGH + GAP), STEP_HIGH]
        : [row.calls + lane * (CALL_HIGH + GAP), CALL_HIGH];
    };

    const draw = () => {
      if (!data || !canvas.clientWidth) return;
      const width = canvas.clientWidth;
      const ratio = window.devicePixelRatio || 1;
      canvas.style.height = `${high}px`;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(high * ratio);
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, high);
      const colours = [colour("--bar-step"), colour("--bar-model"), colour("--bar-tool")];
      const bad = colour("--bar-bad"), text = colour("--text"), dim = colour("--dim");
      highlight(colour("--accent-soft"), colour("--accent"));
      ruler(width, colour("--line"), dim);
      pen.textBaseline = "middle";
      agents(dim);
      const drawn = new Map(); // by row: up to which pixel it is full, so that none is drawn twice
      tops = [];
      for (let at = 0; at < data.bars.length; at += WIDE) {
        const left = (data.bars[at + AT] - view.from) * scale();
        const right = (end(at) - view.from) * scale();
        if (right < 0 || left > width) continue;
        const [top, tall] = place(at);
        const wrong = data.bars[at + STATUS] === FAILED || data.bars[at + STATUS] === INTERRUPTED;
        const x = Math.max(left, -2);
        const long = Math.max(Math.min(right, width + 2) - x - (right - left > 3 ? 1 : 0), wrong ? 3 : 1.5);
        if (!wrong && x + long <= (drawn.get(top) ?? -9)) continue;
        drawn.set(top, x + long);
        if (wrong) { tops.push([at, x, top, long, tall]); continue; }
        pen.globalAlpha = data.bars[at + STATUS] === 3 ? 0.45 : 1;
        fill(x, top, long, tall, colours[data.bars[at + KIND]]);
        pen.globalAlpha = 1;
        label(at, x, top, long, tall, text);
        if (data.bars[at + STATUS] === 0) running(x, top, long, tall, colour("--run"));
      }
      // Failures last, over everything, however short they were.
      for (const [at, x, top, long, tall] of tops) {
        fill(x, top, long, tall, bad);
        label(at, x, top, long, tall, "#fff");
        if (data.bars[at + KIND] === 0) {
          pen.fillStyle = bad;
          pen.beginPath();
          pen.moveTo(x - 1, RULER - 8); pen.lineTo(x + 9, RULER - 8); pen.lineTo(x + 4, RULER - 1);
          pen.fill();
        }
      }
      pictures(width);
    };

    const fill = (x, y, wide, tall, with_) => {
      pen.fillStyle = with_;
      pen.beginPath();
      pen.roundRect(x, y, wide, tall, Math.min(3, wide / 2));
      pen.fill();
    };

    const running = (x, y, wide, tall, with_) => {
      pen.fillStyle = with_;
      pen.fillRect(x + wide - 3, y, 3, tall);
    };

    const label = (at, x, y, wide, tall, with_) => {
      const step = data.bars[at + KIND] === 0;
      if (wide < (step ? 22 : 40) || (!step && tall < 9)) return;
      const name = data.names[data.bars[at + NAME]];
      const index = data.indexes[data.bars[at + STEP]];
      let shown = step ? `${index} ${name}`.trim() : name;
      pen.font = step ? "11px system-ui, sans-serif" : "8.5px system-ui, sans-serif";
      const room = wide - 8;
      if (pen.measureText(shown).width > room) {
        if (step && pen.measureText(`${index}`).width <= room) {
          while (shown.length > 1 && pen.measureText(`${shown}…`).width > room) shown = shown.slice(0, -1);
          shown = shown.length > `${index}`.length + 2 ? `${shown}…` : `${index}`;
        } else return;
      }
      pen.fillStyle = step ? with_ : "#fff";
      pen.fillText(shown, Math.max(x, 0) + 4, y + tall / 2 + 0.5);
    };

    const ruler = (width, line, dim) => {
      const span = view.to - view.from;
      const rough = span / Math.max(width / 110, 1);
      const units = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5,
        6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 1728e5, 6048e5];
      const step = units.find((unit) => unit >= rough) ?? Math.ceil(rough / 6048e5) * 6048e5;
      pen.font = "11px system-ui, sans-serif";
      pen.textBaseline = "middle";
      for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
        const x = Math.round((at - view.from) * scale()) + 0.5;
        pen.fillStyle = line;
        pen.fillRect(x, 0, 1, high);
        pen.fillStyle = dim;
        const shown = at === 0 ? "0" : TH.duration(at);
        if (x + pen.measureText(shown).width + 6 < width) pen.fillText(shown, x + 4, 8);
      }
    };

    const agents = (dim) => {
      for (const row of rows.values()) {
        if (row.label < 0) continue;
        pen.font = "600 11px system-ui, sans-serif";
        pen.fillStyle = dim;
        pen.fillText(`${row.depth ? "↳ " : ""}${row.name || "(no agent)"}`, 4 + row.depth * 18, row.label + LABEL_HIGH / 2);
      }
    };

    const barOf = (step) => {
      for (let at = 0; at < data.bars.length; at += WIDE) {
        if (data.bars[at + KIND] === 0 && data.bars[at + STEP] === step) return at;
      }
      return -1;
    };

    const highlight = (soft, strong) => {
      const at = chosen < 0 ? -1 : barOf(chosen);
      if (at < 0) return;
      const x = (data.bars[at + AT] - view.from) * scale();
      const wide = Math.max((end(at) - data.bars[at + AT]) * scale(), 2);
      pen.fillStyle = soft;
      pen.fillRect(x, 0, wide, high);
      pen.fillStyle = strong;
      pen.fillRect(x, 0, wide, 2);
    };

    // --- pictures -------------------------------------------------------------------------------

    const source = (sha) => {
      if (!/^[0-9a-f]{64}$/.test(sha)) return null;
      if (section.dataset.thumbnails) return section.dataset.thumbnails + sha;
      return TH.pictures?.get(sha) ?? null;
    };

    const tiles = new Map();
    const pictures = (width) => {
      const { sha256, at, step } = data.shots;
      strip.classList.toggle("filled", sha256.length > 0);
      const shown = new Set();
      const middle = (moment) => Math.min(Math.max((moment - view.from) * scale() - TILE / 2, 0), width - TILE);
      const isSeen = (moment) => moment >= view.from && moment <= view.to;
      // The last picture of the step that is chosen has its place whatever else there is.
      const own = step.findLastIndex((one, number) => one === chosen && chosen >= 0 && isSeen(at[number]));
      const kept = own < 0 ? Infinity : middle(at[own]);
      let free = -1e9;
      const put = (number) => {
        const wanted = middle(at[number]);
        const x = number === own ? kept : Math.max(wanted, free);
        if (number < own && x + TILE + SPACE > kept) return;
        if (x - wanted > TILE * 0.6 || x > width - TILE) return;
        const address = source(sha256[number]);
        if (!address) return;
        free = x + TILE + SPACE;
        let tile = tiles.get(number);
        if (!tile) {
          tile = TH.make("a", { tabIndex: -1 });
          tile.append(TH.make("img", { alt: "", decoding: "async", src: address }));
          if (step[number] >= 0) tile.dataset.at = step[number];
          tile.dataset.shot = number;
          tiles.set(number, tile);
          strip.append(tile);
        }
        tile.style.left = `${x}px`;
        tile.classList.toggle("bad", data.bad.has(step[number]));
        tile.classList.toggle("chosen", step[number] === chosen);
        shown.add(number);
      };
      // A picture makes a little room for the one before it; of still more the first ones are shown.
      at.forEach((moment, number) => {
        if (isSeen(moment)) put(number);
      });
      for (const [number, tile] of tiles) {
        if (!shown.has(number)) { tile.remove(); tiles.delete(number); }
      }
    };

    const go = (step) => {
      if (step >= 0) TH.list.choose(data.ids[step], { index: data.indexes[step] });
    };
    strip.addEventListener("click", (event) => {
      const tile = event.target.closest("a");
      if (tile?.dataset.at) go(Number(tile.dataset.at));
    });
    strip.addEventListener("pointerover", (event) => {
      const tile = event.target.closest("a");
      if (!tile) return;
      const number = Number(tile.dataset.shot);
      const address = source(data.shots.sha256[number]);
      const at = data.shots.step[number];
      const words = at >= 0 ? `Step ${data.indexes[at]} · ${TH.duration(data.shots.at[number])}` : "";
      tip(event, [TH.make("img", { alt: "", src: address }), words]);
    });
    strip.addEventListener("pointerleave", () => tip(null));

    // --- pointing -------------------------------------------------------------------------------

    let bubble = null;
    const tip = (event, content) => {
      bubble?.remove();
      bubble = null;
      if (!event) return;
      bubble = TH.make("div", { className: "tip" }, ...content);
      document.body.append(bubble);
      const set = () => {
        const wide = bubble?.offsetWidth ?? 0, tall = bubble?.offsetHeight ?? 0;
        if (!bubble) return;
        bubble.style.left = `${Math.max(Math.min(event.clientX + 14, innerWidth - wide - 8), 8)}px`;
        const below = event.clientY + 18;
        bubble.style.top = `${below + tall < innerHeight ? below : Math.max(event.clientY - tall - 12, 8)}px`;
      };
      set();
      TH.one("img", bubble)?.addEventListener("load", set);
    };

    const under = (event) => {
      const around = canvas.getBoundingClientRect();
      const x = event.clientX - around.left, y = event.clientY - around.top;
      let best = -1, nearest = 5;
      for (let at = 0; at < data.bars.length; at += WIDE) {
        const [top, tall] = place(at);
        if (y < top - 1 || y > top + tall + 1) continue;
        const left = (data.bars[at + AT] - view.from) * scale();
        const right = (end(at) - view.from) * scale();
        const far = x < left ? left - x : x > right ? x - right : 0;
        if (far < nearest) { best = at; nearest = far; }
      }
      return best;
    };

    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => {
      dragged = { x: event.clientX, view: { ...view }, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!data) return;
      if (dragged && Math.abs(event.clientX - dragged.x) > 4) dragged.moved = true;
      if (dragged?.moved) {
        const by = (dragged.x - event.clientX) / scale();
        return look(dragged.view.from + by, dragged.view.to + by);
      }
      const at = under(event);
      if (at < 0) return tip(null);
      const kind = ["step", "model call", "tool"][data.bars[at + KIND]];
      const step = data.bars[at + STEP];
      const name = data.names[data.bars[at + NAME]];
      const status = TH.statuses[data.bars[at + STATUS]] ?? "unknown";
      const took = data.bars[at + LONG] < 0 ? "running" : TH.duration(data.bars[at + LONG]);
      const where = step >= 0 ? `Step ${data.indexes[step]}` : "";
      const title = data.bars[at + KIND] === 0 ? `${where} ${name}` : `${kind} ${name}`;
      tip(event, [TH.make("b", { textContent: title }), TH.make("br"),
        `${took} · ${status} · at ${TH.duration(data.bars[at + AT])}`]);
    });
    canvas.addEventListener("pointerup", (event) => {
      const clicked = dragged && !dragged.moved;
      dragged = null;
      const at = clicked && data ? under(event) : -1;
      if (at >= 0) go(data.bars[at + STEP]);
    });
    canvas.addEventListener("pointercancel", () => { dragged = null; });
    canvas.addEventListener("pointerleave", () => tip(null));
    canvas.addEventListener("wheel", (event) => {
      // The plain wheel scrolls the page.
      if (!data || !(event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.deltaX)) return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey || event.altKey) {
        const around = canvas.getBoundingClientRect();
        zoom(Math.exp(event.deltaY / 300), view.from + (event.clientX - around.left) / scale());
      } else {
        const by = (event.deltaX || event.deltaY) / scale();
        look(view.from + by, view.to + by);
      }
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => {
      const around = canvas.getBoundingClientRect();
      zoom(0.4, view.from + (event.clientX - around.left) / scale());
    });

    // --- the view -------------------------------------------------------------------------------

    let asked = false;
    const redraw = () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => { asked = false; draw(); });
    };
    const look = (from, to) => {
      const span = Math.min(Math.max(to - from, Math.min(2, data.length)), data.length);
      from = Math.min(Math.max(from, 0), data.length - span);
      view = { from, to: from + span };
      redraw();
    };
    const zoom = (by, around = (view.from + view.to) / 2) => {
      if (data) look(around - (around - view.from) * by, around + (view.to - around) * by);
    };
    const fit = () => { if (data) look(0, data.length); };

    section.addEventListener("click", (event) => {
      const what = event.target.closest("[data-zoom]")?.dataset.zoom;
      if (what === "fit") fit();
      else if (what) zoom(what === "in" ? 0.5 : 2);
    });

    // --- in words -------------------------------------------------------------------------------

    const longest = TH.one("details.longest", section);
    const table = () => {
      const all = [];
      for (let at = 0; at < data.bars.length; at += WIDE) all.push(at);
      all.sort((one, other) => end(other) - data.bars[other + AT] - end(one) + data.bars[one + AT]);
      const body = TH.make("tbody");
      for (const at of all.slice(0, 20)) {
        const step = data.bars[at + STEP];
        const link = step < 0 ? "" : TH.make("a", {
          href: section.dataset.json ? `#${data.ids[step]}` : `?step=${encodeURIComponent(data.ids[step])}`,
          textContent: `Step ${data.indexes[step]}`,
        });
        if (link) { link.dataset.step = data.ids[step]; link.dataset.index = data.indexes[step]; }
        body.append(TH.make("tr", {},
          TH.make("td", { className: "num", textContent: TH.duration(end(at) - data.bars[at + AT]) }),
          TH.make("td", { textContent: ["step", "model call", "tool call"][data.bars[at + KIND]] }),
          TH.make("td", { textContent: data.names[data.bars[at + NAME]] }),
          TH.make("td", {}, link),
          TH.make("td", { textContent: TH.statuses[data.bars[at + STATUS]] ?? "" })));
      }
      TH.one("#longest", section).replaceChildren(TH.make("table", {}, body));
    };
    longest.addEventListener("toggle", () => { if (longest.open && data) table(); });

    const legend = TH.one(".legend", section);
    for (const [name, words] of [["step", "step"], ["model", "model call"], ["tool", "tool call"], ["bad", "failed"]]) {
      legend.append(TH.make("span", {}, TH.make("i", { className: `k-${name}` }), words));
    }

    const start = () => {
      loading ??= load().then((fresh) => { prepare(fresh); draw(); return data; }).catch((error) => {
        loading = null;
        const element = TH.one("#axis-note", section);
        element.hidden = false;
        element.textContent = "The axis could not be loaded.";
        throw error;
      });
      return loading;
    };

    TH.axis = {
      draw: redraw, zoom, fit,
      order: () => start().catch(() => null),
      choose(id) {
        chosen = data ? data.ids.indexOf(id) : -1;
        const at = data && chosen >= 0 ? barOf(chosen) : -1;
        // Into sight, when the axis shows only a part.
        if (at >= 0 && (end(at) < view.from || data.bars[at + AT] > view.to)) {
          const span = view.to - view.from;
          look(data.bars[at + AT] - span / 3, data.bars[at + AT] + span * 2 / 3);
        }
        redraw();
      },
      async reload() {
        if (!data) return;
        prepare(await load());
        if (longest.open) table();
        draw();
      },
    };

    new IntersectionObserver((entries, own) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      own.disconnect();
      start().catch(() => {});
    }).observe(section);
    new ResizeObserver(redraw).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }
}
