// The stream of news, opened again after everything but the end of a login, which is told: {kind: "login"}.
"use strict";

function follow(tell) {
  let stream = null;
  let lost = false;

  async function isLoggedOut() { // a stream that is refused does not say why
    const asking = new AbortController();
    try {
      return (await fetch("/events", { cache: "no-store", signal: asking.signal })).status === 401;
    } catch {
      return false;
    } finally {
      asking.abort();
    }
  }

  function open() {
    stream = new EventSource("/events");
    stream.addEventListener("news", (event) => tell({ kind: "news", news: JSON.parse(event.data) }));
    stream.onopen = () => {
      if (lost) tell({ kind: "back" });
      lost = false;
    };
    stream.onerror = async () => {
      lost = true;
      tell({ kind: "lost" });
      if (stream.readyState !== EventSource.CLOSED) return; // the browser tries it again
      if (await isLoggedOut()) {
        stream = null;
        tell({ kind: "login" });
      } else {
        setTimeout(open, 1000);
      }
    };
  }

  open();
  return () => { if (stream === null) open(); }; // somebody may have logged in
}
