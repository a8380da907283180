// Follows a running task: asks once a second while the page is seen, and stops when it has ended.


{
  const EVERY = 1000;
  let head = TH.one("#task-head");

  if (head?.dataset.status === "running" && head.dataset.changes) {
    const badge = () => TH.one("#live");
    const follow = TH.one("#follow");
    let seq = Number(head.dataset.seq);
    let due = 0;
    let ended = false;
    if (badge()) badge().hidden = false;
    if (follow) {
      follow.hidden = false;
      follow.addEventListener("click", () => {
        const on = follow.getAttribute("aria-pressed") !== "true";
        follow.setAttribute("aria-pressed", String(on));
        if (on) TH.list.end(true);
      });
    }

    // The head as the server shows it now; what the reader has opened in it stays open.
    const refreshHead = async () => {
      const answer = await fetch(head.dataset.task, { headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = TH.one("#task-head", parsed);
      if (!fresh) return;
      TH.times(fresh);
      const opened = TH.all("details", head).map((one) => one.open);
      head.replaceWith(fresh);
      head = fresh;
      TH.all("details", head).forEach((one, number) => { if (opened[number]) one.open = true; });
      const live = badge();
      if (live) live.hidden = ended;
    };

    const update = async (changes) => {
      const known = changes.steps.find(([id]) => TH.list.item(id));
      const [id, index] = known ?? changes.steps[0] ?? [];
      if (id !== undefined) {
        const cursor = encodeURIComponent(`from:${index}.${id}`);
        const added = TH.list.merge(await TH.nodes(`${head.dataset.steps}?cursor=${cursor}`));
        TH.one("#step-count").textContent = changes.step_count.toLocaleString("en");
        TH.one("#step-unit").textContent = changes.step_count === 1 ? " step" : " steps";
        if (added && follow?.getAttribute("aria-pressed") === "true") {
          await TH.list.choose(added.dataset.id, { replace: true });
        } else if (changes.steps.some(([one]) => one === TH.pane.id) && !TH.pane.isFull) {
          const selecting = String(getSelection()).length > 0;
          if (!selecting) await TH.pane.show(TH.pane.id, { push: false, keep: true });
        } else if (!TH.pane.id && added) {
          await TH.list.choose(added.dataset.id, { push: false });
        }
      }
      await refreshHead();
      // All bars again: the longer that takes, the less often it is done.
      if (ended || Date.now() > due) {
        const begun = Date.now();
        await TH.axis?.reload();
        due = Date.now() + Math.max(2000, 15 * (Date.now() - begun));
      }
    };

    const look = async () => {
      if (!document.hidden) {
        try {
          const changes = await TH.json(`${head.dataset.changes}?after=${seq}`);
          if (changes.reset) return location.reload();
          ended = changes.ended;
          if (changes.seq > seq || ended) await update(changes);
          seq = changes.seq;
          badge()?.classList.remove("lost");
        } catch {
          badge()?.classList.add("lost");
        }
      }
      if (!ended) return void setTimeout(look, EVERY);
      if (follow) follow.hidden = true;
      TH.say("The task has ended.");
    };
    setTimeout(look, EVERY);
    document.addEventListener("visibilitychange", () => TH.axis?.draw());
  }
}
