// Forms that a visitor's own wallet signs (EIP-1193): the service plans the action, the wallet decides. No key is here.
(() => {
  const POLL = 1000, LONGEST = 180_000; // milliseconds

  class Stopped extends Error {}
  const sleep = (time) => new Promise((done) => setTimeout(done, time));
  const said = (tag, text, kind = "") => Object.assign(document.createElement(tag), { textContent: text, className: kind });

  async function ask(method, params = []) {
    try {
      return await window.ethereum.request({ method, params });
    } catch (bad) {
      if (bad?.code === 4001) throw new Stopped("You declined in the wallet. Nothing more was sent.");
      if (bad?.code === -32002) throw new Stopped("Your wallet already asks for an answer: open it.");
      const reason = bad?.data?.message || bad?.message || String(bad);
      throw Object.assign(new Stopped(`The wallet refused ${method}: ${String(reason).slice(0, 300)}`), { code: bad?.code });
    }
  }
  async function plan(path, body) {
    const sent = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const answer = await fetch(path, sent);
    const found = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Stopped([found.detail || `The service answered ${answer.status}.`, found.remedy].filter(Boolean).join(" "));
    return found;
  }
  async function account() {
    if (!window.ethereum?.request) throw new Stopped("No wallet answers in this browser. Install one, or use the command.");
    const [first] = await ask("eth_requestAccounts");
    if (!first) throw new Stopped("The wallet names no account. Unlock it and try again.");
    return first.toLowerCase();
  }
  async function rightChain(form) {
    const wanted = Number(form.dataset.chain), here = async () => Number(await ask("eth_chainId"));
    const first = await here();
    if (first === wanted) return;
    await ask("wallet_switchEthereumChain", [{ chainId: "0x" + wanted.toString(16) }]).catch(() => {});
    if ((await here()) !== wanted) throw new Stopped(`Your wallet is on chain ${first}; this is on ${form.dataset.network} (chain ${wanted}). Switch there and try again.`);
  }
  async function mined(hash) {
    for (const end = Date.now() + LONGEST; ; await sleep(POLL)) {
      const receipt = await ask("eth_getTransactionReceipt", [hash]);
      if (receipt && Number(receipt.status) === 1) return receipt;
      if (receipt) throw new Stopped(`Transaction ${hash} reverted: it changed nothing. Try again to see why.`);
      if (Date.now() > end) throw new Stopped(`Transaction ${hash} is sent, but is in no block yet. Look at it in your wallet.`);
    }
  }
  async function send(found, from, tell) {
    const receipts = [];
    for (const [at, one] of found.transactions.entries()) {
      tell(`${found.transactions.length > 1 ? `${at + 1} of ${found.transactions.length}: ` : ""}${one.description}. Confirm it in your wallet.`);
      const chainId = "0x" + one.chainId.toString(16); // a wallet that was moved to another chain meanwhile refuses
      const hash = await ask("eth_sendTransaction", [{ from, to: one.to, data: one.data, value: "0x0", chainId }]);
      tell(`Sent as ${hash}; waiting for its block.`);
      receipts.push(await mined(hash));
    }
    return receipts;
  }
  const fields = (form) => Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));

  const acts = {
    async claim(form, from, tell) {
      const found = await plan(`/api/v1/actions/claim/${form.dataset.address}?sender=${from}`);
      const receipts = await send(found, from, tell);
      return [`Claimed. ${found.summary}`, receipts.at(-1).transactionHash];
    },
    async post(form, from, tell) {
      const { skills, ...body } = fields(form);
      const asked = { ...body, skills: skills.split(",").map((one) => one.trim()).filter(Boolean) };
      const found = await plan(`/api/v1/actions/post?sender=${from}`, asked), key = from + JSON.stringify(asked);
      if (form.dataset.shown !== key) { // the plan is read before anything is signed
        form.dataset.shown = key;
        form.querySelector("button[type=submit]").textContent = "Sign in the wallet";
        return [[found.summary, ...found.warnings.map((one) => `Note: ${one}`), ...found.transactions.map((one) => `Will sign: ${one.description}.`)].join("\n"), ""];
      }
      const logs = (await send(found, from, tell)).flatMap((one) => one.logs);
      const made = logs.find((log) => log.address.toLowerCase() === form.dataset.factory && log.topics.length === 3);
      return ["Posted. Its page appears here within five minutes.", made.transactionHash, `/challenges/0x${made.topics[1].slice(-40)}`];
    },
    async object(form, from, tell) {
      const asked = fields(form), address = form.dataset.address;
      const { message } = await plan(`/api/v1/actions/object/${address}?${new URLSearchParams(asked)}`);
      tell("Sign the objection in your wallet; it costs nothing.");
      const bytes = Array.from(new TextEncoder().encode(message), (byte) => byte.toString(16).padStart(2, "0")).join("");
      const signature = await ask("personal_sign", ["0x" + bytes, from]);
      await plan(`/api/v1/challenges/${address}/objections`, { ...asked, signature });
      return ["Objection received. It is looked at before the post.", ""];
    },
  };

  function sign(form) {
    if (form.dataset.ready) return; // kept by a page that renewed itself around it
    form.dataset.ready = "yes";
    const result = form.querySelector("[role=status]"), button = form.querySelector("button[type=submit]");
    const tell = (text, kind = "quiet") => result.replaceChildren(...text.split("\n").map((line) => said("p", line, kind)));
    button.disabled = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        const from = await account();
        await rightChain(form);
        const [words, hash, page] = await acts[form.dataset.act](form, from, tell);
        tell(words, "");
        if (hash) result.append(said("p", hash, "mono breaks"));
        if (page) result.append(Object.assign(said("a", "Its page"), { href: page }));
      } catch (bad) {
        tell(bad instanceof Stopped ? bad.message : `That did not work: ${bad.message || bad}`, "alert");
      }
      button.disabled = false;
    });
  }
  const signAll = () => document.querySelectorAll("form[data-act]").forEach(sign);
  signAll();
  document.addEventListener("htmx:afterSettle", signAll);
})();
