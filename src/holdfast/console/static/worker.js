// The one stream of a browser: what it hears, every page hears.
"use strict";

const channel = new BroadcastChannel("holdfast");
let last = null;
let lost = false;

const stream = new EventSource("/events");
stream.addEventListener("news", (event) => {
  last = { kind: "news", news: JSON.parse(event.data) };
  channel.postMessage(last);
});
stream.onerror = () => {
  lost = true;
  channel.postMessage({ kind: "lost" });
};
stream.onopen = () => {
  if (lost) channel.postMessage({ kind: "back" });
  lost = false;
};

onconnect = (event) => {
  const port = event.ports[0];
  port.start();
  if (last) port.postMessage(last);
};
