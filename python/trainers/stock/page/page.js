// Sends the chosen or dropped files one by one; their content goes only to this server.
const drop = document.getElementById("drop");
if (drop) {
  const said = document.getElementById("said");
  const send = async chosen => {
    const all = [...chosen].filter(file => !file.name.startsWith("."));
    for (const [place, file] of all.entries()) {
      said.textContent = `Reading ${file.name}, ${place + 1} of ${all.length}`;
      const query = new URLSearchParams({name: file.name, ...(place ? {} : {first: "yes"})});
      const answer = await fetch(`/page/files?${query}`, {method: "POST", body: file}).catch(() => null);
      if (!answer?.ok) {
        const page = answer && new DOMParser().parseFromString(await answer.text(), "text/html");
        said.textContent = page?.getElementById("message")?.textContent ?? `${file.name} was not accepted: it is too large, or the server has stopped.`;
        return;
      }
    }
    if (all.length) location.assign("/page/bars");
  };
  const within = async entry => {  // a dropped folder is read to its leaves
    if (entry.isFile) return [await new Promise((done, failed) => entry.file(done, failed))];
    const reader = entry.createReader(), found = [];
    for (;;) {
      const part = await new Promise((done, failed) => reader.readEntries(done, failed));
      if (!part.length) return found;
      for (const one of part) found.push(...await within(one));
    }
  };
  drop.querySelectorAll("input").forEach(input => input.addEventListener("change", () => send(input.files)));
  drop.addEventListener("dragover", event => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", async event => {
    event.preventDefault();
    drop.classList.remove("over");
    const entries = [...event.dataTransfer.items].map(item => item.webkitGetAsEntry()).filter(Boolean);
    const files = [];
    for (const entry of entries) files.push(...await within(entry));
    send(files);
  });
}
document.querySelectorAll("pre").forEach(text => {
  const copy = Object.assign(document.createElement("button"), {type: "button", className: "action copy", textContent: "Copy"});
  copy.setAttribute("aria-label", `Copy: ${text.dataset.name ?? "text"}`);
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text.textContent);
    copy.textContent = "Copied";
  });
  text.before(copy);
});
document.querySelectorAll("form[data-now] select").forEach(one => one.addEventListener("change", () => one.form.requestSubmit()));
const progress = document.getElementById("progress");
if (progress) {  // shows how far the training is, and the page of its end
  let failures = 0;
  const timer = setInterval(async () => {
    const answer = await fetch("/page/training/state").catch(() => null);
    failures = answer?.ok ? 0 : failures + 1;
    if (failures > 0) {
      if (failures < 5) return;  // a laptop wakes up, or the server is busy
      clearInterval(timer);
      document.getElementById("stage").textContent = "The server has stopped, and the training with it.";
      return;
    }
    const state = await answer.json();
    if (state.phase !== progress.dataset.phase) return location.reload();
    const bar = document.getElementById("share");
    if (state.numbers) bar.value = state.share; else bar.removeAttribute("value");
    for (const name of ["stage", "numbers"]) {
      const text = document.getElementById(name);
      if (text.textContent !== state[name]) text.textContent = state[name];
    }
  }, 1000);
}
