// The list of steps: parts load when they are seen; one step is chosen.


{
  const list = TH.one("#steps");
  const head = TH.one("#task-head");

  // Loads what a ``.more`` stands for, in its place; who asks while it loads waits for the same.
  const loading = new WeakMap();
  const load = (more) => {
    if (!loading.has(more)) loading.set(more, loadNow(more));
    return loading.get(more);
  };
  const loadNow = async (more) => {
    try {
      const nodes = await TH.nodes(more.dataset.load);
      const start = more.dataset.at === "start";
      const scroller = more.closest(".step-list");
      const before = scroller ? scroller.scrollHeight - scroller.scrollTop : 0;
      const other = start ? "end" : "start";
      const wanted = nodes.filter((node) => node.dataset?.at !== other);
      more.replaceWith(...wanted);
      // What is above the reader has grown: the place where they read stays.
      if (start && scroller) scroller.scrollTop = scroller.scrollHeight - before;
      watch(document);
    } catch {
      loading.delete(more);
    }
  };

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) load(entry.target);
  }, { rootMargin: "300px" });

  const watch = (within) => {
    for (const more of TH.all(".more[data-load]", within)) seen.observe(more);
  };

  if (list && head) {
    const item = (id) => TH.one(`li.step[data-id="${CSS.escape(id)}"]`, list);
    const steps = () => TH.all("li.step", list);

    TH.list = {
      item,
      get chosen() { return TH.one("a[aria-current]", list)?.closest("li") ?? null; },

      mark(id) {
        for (const link of TH.all("a[aria-current]", list)) link.removeAttribute("aria-current");
        const found = item(id);
        if (found) {
          TH.one("a", found).setAttribute("aria-current", "step");
          reveal(found);
        }
        TH.axis?.choose(id);
        return found;
      },

      // Shows a step, wherever in the task it is.
      async choose(id, { index = null, focus = false, ...how } = {}) {
        if (!item(id) && index !== null && head.dataset.steps) await jump(id, index);
        const found = TH.list.mark(id);
        if (found && focus) TH.one("a", found).focus({ preventScroll: true });
        const shown = await TH.pane.show(id, how);
        if (shown) TH.say(`Step ${TH.pane.index}`);
        return shown;
      },

      async move(by) {
        const own = TH.list.chosen;
        const all = steps();
        let next = own ? all[all.indexOf(own) + by] : all[0];
        if (!next) {
          const more = TH.one(`.more[data-at="${by > 0 ? "end" : "start"}"]`, list);
          if (!more) return;
          await load(more);
          const loaded = steps();
          next = loaded[loaded.indexOf(own) + by];
        }
        if (next) await TH.list.choose(next.dataset.id, { replace: true, focus: true });
      },

      async end(last) {
        const all = steps();
        const own = all[last ? all.length - 1 : 0];
        if (!own) return false;
        if (TH.one(`.more[data-at="${last ? "end" : "start"}"]`, list)) {
          // The list goes on there; the axis knows every step.
          const found = await TH.axis?.order();
          if (found?.ids.length) {
            const at = last ? found.ids.length - 1 : 0;
            return TH.list.choose(found.ids[at], { index: found.indexes[at], replace: true, focus: true });
          }
        }
        return TH.list.choose(own.dataset.id, { replace: true, focus: true });
      },

      async nextFailure() {
        const found = await TH.axis?.order();
        if (!found) return;
        const bad = found.ids.map((id, at) => at).filter((at) => found.bad.has(at));
        if (!bad.length) return TH.say("No step failed.");
        const own = found.ids.indexOf(TH.pane.id);
        const at = bad.find((one) => one > own) ?? bad[0];
        return TH.list.choose(found.ids[at], { index: found.indexes[at], replace: true, focus: true });
      },

      // Puts changed steps in their place, and new ones at the end when that is loaded.
      merge(nodes) {
        let added = null;
        for (const node of nodes.filter((one) => one.classList?.contains("step"))) {
          const known = item(node.dataset.id);
          if (known) {
            const current = TH.one("a[aria-current]", known);
            if (current) TH.one("a", node).setAttribute("aria-current", "step");
            const focused = known.contains(document.activeElement);
            known.replaceWith(node);
            if (focused) TH.one("a", node).focus({ preventScroll: true });
          } else if (!TH.one('.more[data-at="end"]', list)) {
            const after = steps().filter((one) => Number(one.dataset.index) <= Number(node.dataset.index)).pop();
            if (after) after.after(node); else list.append(node);
            node.classList.add("fresh");
            added = node;
          }
        }
        return added;
      },
    };

    const reveal = (found) => {
      const scroller = list.closest(".step-list");
      const box = found.getBoundingClientRect();
      const around = scroller.getBoundingClientRect();
      if (box.top < around.top + 50) scroller.scrollTop -= around.top + 50 - box.top;
      else if (box.bottom > around.bottom) scroller.scrollTop += box.bottom - around.bottom + 4;
    };

    // Another part of the list, beginning a little before a step that is far away.
    const jump = async (id, index) => {
      const url = `${head.dataset.steps}?cursor=${encodeURIComponent(`from:${index}.${id}`)}`;
      try {
        list.replaceChildren(...await TH.nodes(url));
        list.closest(".step-list").scrollTop = 0;
        watch(list);
      } catch { /* the step itself is shown all the same */ }
    };

    document.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      const own = event.target.closest("#steps li.step > a");
      const link = own ?? event.target.closest("a[data-step]");
      if (!link) return;
      const id = own ? own.closest("li").dataset.id : link.dataset.step;
      event.preventDefault();
      TH.list.choose(id, { index: link.dataset.index ?? null }).then(() => {
        const narrow = matchMedia("(max-width: 900px)").matches;
        if (!own || narrow) TH.one("#pane").scrollIntoView({ block: "start" });
      });
    });

    if (TH.pane?.id) TH.list.mark(TH.pane.id);
  }
  watch(document);
}
