// Times in the zone of whoever looks; UTC stays in the title.


{
  const day = { year: "numeric", month: "short", day: "numeric" };
  const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const zone = { timeZoneName: "short" };
  const full = new Intl.DateTimeFormat(undefined, { ...day, ...clock, ...zone });
  const short = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", ...clock, ...zone });

  const ago = (ms) => {
    const units = [[864e5, "d"], [36e5, "h"], [6e4, "min"], [1e3, "s"]];
    const [size, unit] = units.find(([size]) => ms >= size) || [1e3, "s"];
    return `${Math.max(Math.floor(ms / size), 0)} ${unit} ago`;
  };

  TH.times = (within) => {
    for (const element of TH.all("time[datetime]", within)) {
      if (element.title) continue;
      const moment = new Date(element.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      element.title = `${full.format(moment)} = ${element.textContent}`;
      const thisYear = moment.getFullYear() === new Date().getFullYear();
      element.textContent = (thisYear ? short : full).format(moment);
      if (element.dataset.ago) {
        element.append(" ", TH.make("span", { className: "ago", textContent: ago(Date.now() - moment) }));
      }
    }
  };
  TH.times(document);

  // What runs is counted on.
  setInterval(() => {
    if (document.hidden) return;
    for (const element of TH.all(".took[data-since]")) {
      const since = Date.now() - new Date(element.dataset.since);
      if (since >= 0) element.textContent = TH.duration(since);
    }
  }, 1000);
}
