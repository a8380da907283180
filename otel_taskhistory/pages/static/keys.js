// The keyboard. No key acts while somebody types.


{
  const help = TH.one("#help");
  const open = () => { if (help && !help.open) help.showModal(); };
  TH.one(".help-button")?.addEventListener("click", open);

  const keys = {
    "/": () => { const field = TH.one("#q"); field?.focus(); field?.select(); },
    "?": open,
    j: () => TH.list?.move(1),
    k: () => TH.list?.move(-1),
    f: () => TH.list?.nextFailure(),
    p: () => TH.pane?.show(TH.pane.id, { full: !TH.pane.isFull, push: false }),
    "+": () => TH.axis?.zoom(0.5),
    "-": () => TH.axis?.zoom(2),
    0: () => TH.axis?.fit(),
  };
  const onPage = {
    ArrowDown: () => TH.list.move(1),
    ArrowUp: () => TH.list.move(-1),
    Home: () => TH.list.end(false),
    End: () => TH.list.end(true),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help?.open) return;
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    // Arrows scroll the page as ever, unless the list has the focus.
    const inList = event.target.closest("#steps");
    const isEnd = event.key === "Home" || event.key === "End";
    const act = keys[event.key] ?? (TH.list && (inList || isEnd) ? onPage[event.key] : null);
    if (!act) return;
    event.preventDefault();
    act();
  });
}
