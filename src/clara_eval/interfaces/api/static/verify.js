// The page /verify: traces from files, a CID or an address go to a worker; what it says is shown as text.
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
  function show({ lines = [], holds, isOpen, problem }, names = []) {
    const wrong = names.length > 1 ? "Not all of these traces hold." : "This trace does not hold.";
    const told = problem ? "It could not be checked." : isOpen ? "Not everything could be checked here." : holds ? "All checks passed." : wrong;
    const list = said("ul", "", "told"), rest = [];
    let of = "";
    for (const line of problem ? [problem] : lines.join("\n").split("\n")) {
      const found = /^(holds|wrong) +(.*)$/.exec(line);
      if (found || problem) list.append(said("li", found ? of + found[2] : line, found?.[1] === "holds" ? "good" : "bad"));
      else if (names.length > 1 && names.includes(line)) of = `${line}: `;
      else if (line && !/problem\(s\)/.test(line)) rest.push(line);
    }
    result.replaceChildren(said("p", told, `verdict-line ${holds && !problem && !isOpen ? "good" : "bad"}`), list);
    if (!rest.length) return;
    const unknown = said("ul", "", "quiet");
    unknown.append(...rest.join(" ").replace(/^not checked here: /, "").split("; ").map((one) => said("li", one)));
    result.append(said("h2", "What this cannot know"), unknown);
  }
  async function check(event) {
    event?.preventDefault();
    const chosen = [...form.elements.file.files], text = form.elements.trace.value.trim(), address = chosen.length ? null : place(text);
    if (!chosen.length && !address) return show({ problem: "Choose a file, or give an address, a CID or a URL." });
    result.replaceChildren(said("p", "Checking…", "quiet"));
    const worker = new Worker("/static/verify-worker.js", { type: "module" });
    worker.onmessage = ({ data }) => { show(data, chosen.map((file) => file.name)); worker.terminate(); };
    worker.onerror = (bad) => { show({ problem: bad.message || "The verifier did not start." }); worker.terminate(); };
    const files = await Promise.all(chosen.map(async (file) => [file.name, await file.arrayBuffer()]));
    worker.postMessage({ files, address, node: form.elements.node.value.trim() });
  }
  form.addEventListener("submit", check);
  const asked = new URLSearchParams(location.search).get("trace");
  if (asked) form.elements.trace.value = asked;
  if (asked?.startsWith("/api/v1/challenges/")) check(); // a link may start a check of what is here, of nothing else
})();
