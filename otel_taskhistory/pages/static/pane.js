// The step that is chosen: shown beside the list, with an address of its own.


{
  const pane = TH.one("#pane");
  const head = TH.one("#task-head");

  if (pane && head) {
    // A page that was saved as a file has every step in it.
    const saved = pane.dataset.all === "1";
    let running = null;
    const shown = () => TH.one(saved ? "article.shown" : "article", pane);

    const url = (id, full) => {
      const address = `${head.dataset.steps}/${encodeURIComponent(id)}`;
      return full ? `${address}?full=1` : address;
    };

    TH.pane = {
      get id() { return shown()?.dataset.id ?? null; },
      get index() { return Number(shown()?.dataset.index ?? 0); },
      get isFull() { return shown()?.dataset.full === "1"; },

      async show(id, { full = false, push = true, replace = false, keep = false } = {}) {
        if (saved) {
          const article = document.getElementById(id);
          if (!article) return false;
          shown()?.classList.remove("shown");
          article.classList.add("shown");
          if (push) history.replaceState({ step: id }, "", `#${id}`);
          return true;
        }
        running?.abort();
        const own = running = new AbortController();
        const slow = setTimeout(() => pane.setAttribute("aria-busy", "true"), 150);
        try {
          const nodes = await TH.nodes(url(id, full), own.signal);
          const opened = keep ? TH.all("details", pane).map((one) => one.open) : [];
          pane.replaceChildren(...nodes);
          TH.all("details", pane).forEach((one, number) => { if (opened[number]) one.open = true; });
        } catch (error) {
          if (error.name === "AbortError") return false;
          pane.replaceChildren(TH.make("p", {
            className: "notice alarm", textContent: "This step could not be loaded. Is the server still there?",
          }));
          return false;
        } finally {
          clearTimeout(slow);
          if (own === running) pane.removeAttribute("aria-busy");
        }
        if (push) {
          const address = `${head.dataset.task}?step=${encodeURIComponent(id)}`;
          history[replace ? "replaceState" : "pushState"]({ step: id }, "", address);
        }
        return true;
      },
    };

    pane.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-full]");
      if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      TH.pane.show(TH.pane.id, { full: link.dataset.full === "1", push: false });
    });

    window.addEventListener("popstate", (event) => {
      const named = saved ? location.hash.slice(1) : new URLSearchParams(location.search).get("step");
      const id = event.state?.step ?? named;
      if (id) TH.list.choose(id, { push: false });
      else if (!saved) location.reload();
    });
    if (saved) {
      const wanted = decodeURIComponent(location.hash.slice(1));
      const article = document.getElementById(wanted);
      const id = article?.parentElement === pane ? wanted : pane.dataset.first;
      if (id) TH.pane.show(id, { push: false });
      // A picture is in the file once, in its full size; elsewhere it is put by hand.
      TH.pictures = new Map();
      for (const image of TH.all("figure img[data-sha]", pane)) {
        if (!TH.pictures.has(image.dataset.sha)) TH.pictures.set(image.dataset.sha, image.src);
      }
      for (const image of TH.all("img[data-sha]", pane)) {
        const source = TH.pictures.get(image.dataset.sha);
        if (source && image.src !== source) image.src = source;
      }
    }
    if (!saved && TH.pane.id) history.replaceState({ step: TH.pane.id }, "");
  }
}
