// Search from a folder: browsers start no workers for pages that are files, so a hidden frame does their work.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.onmessage = null;
    this.waiting = [];
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inner = this.frame.contentWindow;
    inner.postMessage = (data) => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    };
    const load = (source) =>
      new Promise((done, failed) => {
        const script = inner.document.createElement("script");
        script.onload = done;
        script.onerror = failed;
        script.src = source;
        inner.document.body.appendChild(script);
      });
    inner.importScripts = (...sources) =>
      sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
    load(String(url)).then(() => {
      this.inner = inner;
      this.waiting.forEach((data) => this.postMessage(data));
    });
  }
  postMessage(data) {
    if (!this.inner) this.waiting.push(data);
    else this.inner.dispatchEvent(new MessageEvent("message", { data }));
  }
  terminate() {
    this.frame.remove();
  }
}
if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
