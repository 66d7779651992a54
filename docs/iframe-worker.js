/* Search without a server: browsers refuse web workers on pages opened from a folder, so that the
   search runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = frame.contentDocument.createElement("script")
      script.src = url
      script.onload = () => {
        this.loaded = true
        this.waiting.forEach(data => this.postMessage(data))
      }
      frame.contentDocument.documentElement.append(script)
    }
    postMessage(data) {
      if (this.loaded) this.inside.dispatchEvent(new MessageEvent("message", { data }))
      else this.waiting.push(data)
    }
  }
  window.Worker = window.IFrameWorker
}
