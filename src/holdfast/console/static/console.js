// What a page does with scripts: it follows the cluster, draws charts, follows what is written to a topic.
// Without them every page works, and loads itself again every few seconds.
"use strict";

(() => {
  const asOf = document.getElementById("as-of");
  const trouble = document.getElementById("trouble");
  let seen = Number(document.body.dataset.version);
  let missed = false;

  function tell(text) {
    trouble.hidden = !text;
    trouble.textContent = text || "";
  }

  function refresh() {
    if (document.hidden) { // it is made up for when the page is looked at
      missed = true;
      return;
    }
    missed = false;
    htmx.trigger(document.body, "holdfast-news");
  }

  function heard(message) {
    if (message.kind === "lost") {
      tell("The console does not answer: what is shown is old. It is tried again.");
      missed = true;
      return;
    }
    if (message.kind === "login") { // it has ended: by logging out on another page, or by its time
      location.assign("/login");
      return;
    }
    if (message.kind === "back") {
      seen = -1;
      return;
    }
    const news = message.news;
    asOf.textContent = `as of ${news.taken} UTC`;
    tell(news.trouble ? `What is shown is old: ${news.trouble}` : "");
    if (news.version !== seen) {
      seen = news.version;
      refresh();
    }
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && missed) refresh();
  });

  // One stream for all pages of a browser, which opens six connections to a host at most.
  if (window.SharedWorker && window.BroadcastChannel) {
    const channel = new BroadcastChannel("holdfast");
    channel.onmessage = (event) => heard(event.data);
    const worker = new SharedWorker("/static/worker.js", "holdfast");
    worker.port.start();
    worker.port.onmessage = (event) => heard(event.data);
  } else {
    follow(heard);
  }

  // -- charts ----------------------------------------------------------------------------------------------------

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  async function draw(place) {
    const answer = await fetch(place.dataset.chart);
    if (!answer.ok) return;
    const data = await answer.json();
    if (!data[0].length) return;
    if (place.plot) {
      place.plot.setData(data);
      return;
    }
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 } };
    place.plot = new uPlot({
      width: place.clientWidth, height: 180, legend: { show: true }, cursor: { y: false },
      scales: { y: { range: (u, low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [axis, { ...axis, size: 70 }],
      series: [{}, { label: place.dataset.name, stroke: colour("--accent"), width: 1.5, spanGaps: false }],
    }, data, place);
  }

  const charts = [...document.querySelectorAll("[data-chart]")];
  if (charts.length) {
    const all = () => { if (!document.hidden) charts.forEach((each) => draw(each).catch(() => {})); };
    all();
    setInterval(all, 10000);
    window.addEventListener("resize", () => charts.forEach((each) => each.plot && each.plot.setSize({ width: each.clientWidth, height: 180 })));
  }

  // -- records as they come --------------------------------------------------------------------------------------

  const MOST_ROWS = 200;
  const records = document.getElementById("records");
  const progress = document.getElementById("progress");
  const share = document.getElementById("share");
  const stop = document.getElementById("stop");
  const starters = document.querySelectorAll("[data-tail], [data-search]");
  let running = null;

  function ended() {
    if (running) running.remove();
    running = null;
    stop.hidden = true;
    starters.forEach((each) => { each.hidden = false; });
  }

  function begin(button) {
    const tails = "tail" in button.dataset;
    records.replaceChildren();
    progress.textContent = tails ? "connecting" : "searching";
    share.hidden = tails;
    share.value = 0;
    running = document.createElement("div");
    running.setAttribute("hx-sse:connect", tails ? button.dataset.tail : button.dataset.search);
    running.setAttribute("hx-target", "#records");
    running.setAttribute("hx-swap", tails ? "afterbegin" : "beforeend");
    running.setAttribute("hx-config", '{"sse":{"pauseOnBackground":false,"reconnect":' + tails + "}}");
    running.addEventListener("progress", (event) => {
      const told = JSON.parse(event.detail.data);
      progress.textContent = told.text;
      if ("share" in told) share.value = told.share;
      if (told.over) ended();
    });
    running.addEventListener("htmx:sse:after:message", () => {
      while (records.rows.length > MOST_ROWS) records.deleteRow(tails ? -1 : 0);
    });
    progress.after(running);
    htmx.process(running);
    stop.hidden = false;
    starters.forEach((each) => { each.hidden = true; });
  }

  if (records) {
    starters.forEach((each) => {
      each.hidden = false;
      each.addEventListener("click", () => begin(each));
    });
    stop.addEventListener("click", () => {
      progress.textContent += " Stopped.";
      ended();
    });
  }
})();
