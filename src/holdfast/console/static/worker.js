// The one stream of a browser: what it hears, every page hears.
"use strict";

importScripts("/static/follow.js");

const channel = new BroadcastChannel("holdfast");
let last = null;

const again = follow((message) => {
  last = message.kind === "news" ? message : message.kind === "login" ? null : last;
  channel.postMessage(message);
});

onconnect = (event) => {
  const port = event.ports[0];
  port.start();
  if (last) port.postMessage(last);
  again();
};
