// The page /verify: a trace from a file, a CID or an address goes to a worker; what it says is shown as text.
(() => {
  const form = document.getElementById("verify-form"), result = document.getElementById("verify-result");
  const said = (tag, text, kind = "") => Object.assign(document.createElement(tag), { textContent: text, className: kind });

  function place(text) { // where the trace is; null if the text names none
    const cid = /^(?:ipfs:\/\/)?((?:Qm[1-9A-HJ-NP-Za-km-z]{44})|(?:b[a-z2-7]{50,}))$/.exec(text);
    if (cid) return `https://ipfs.io/ipfs/${cid[1]}`;
    if (/^0x[0-9a-fA-F]{40}$/.test(text)) return `${location.origin}/api/v1/challenges/${text}/eval-trace`;
    if (/^(https:\/\/|\/)/.test(text)) return new URL(text, location.origin).href;
    return null;
  }
  function show({ lines = [], holds, isOpen, problem }) {
    const told = problem ? "It could not be checked." : isOpen ? "Not everything could be checked here." : holds ? "All checks passed." : "This trace does not hold.";
    const list = said("ul", "", "told"), rest = [];
    for (const line of problem ? [problem] : lines.join("\n").split("\n")) {
      const found = /^(holds|wrong) +(.*)$/.exec(line);
      if (found || problem) list.append(said("li", found ? found[2] : line, found?.[1] === "holds" ? "good" : "bad"));
      else if (line && !/problem\(s\)/.test(line)) rest.push(line);
    }
    result.replaceChildren(said("p", told, `verdict-line ${holds && !problem && !isOpen ? "good" : "bad"}`), list);
    if (rest.length) result.append(said("p", rest.join(" "), "quiet"));
  }
  async function check(event) {
    event?.preventDefault();
    const file = form.elements.file.files[0], text = form.elements.trace.value.trim(), address = file ? null : place(text);
    if (!file && !address) return show({ problem: "Choose a file, or give an address, a CID or a URL." });
    result.replaceChildren(said("p", "Checking…", "quiet"));
    const worker = new Worker("/static/verify-worker.js", { type: "module" });
    worker.onmessage = ({ data }) => { show(data); worker.terminate(); };
    worker.onerror = (bad) => { show({ problem: bad.message || "The verifier did not start." }); worker.terminate(); };
    worker.postMessage({ bytes: file ? await file.arrayBuffer() : null, address, node: form.elements.node.value.trim() });
  }
  form.addEventListener("submit", check);
  const asked = new URLSearchParams(location.search).get("trace");
  if (asked) form.elements.trace.value = asked;
  if (asked?.startsWith("/api/v1/challenges/")) check(); // a link may start a check of what is here, of nothing else
})();
