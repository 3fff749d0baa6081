// Colours of a program on the page of an entry: comments, strings, numbers and keywords. Without it the code is as readable.
(() => {
  const LONGEST = 300_000; // characters: a longer text stays plain
  const HASHED = /^\s*(?:(?:async )?def|class)\b[^\n{]*:\s*(?:#.*)?$|^\s*(?:import|from)\s[\w.]+(?: import [\w., *()]+)?\s*$/m;
  const SLASHED = /^\s*(?:pragma solidity|contract|interface|library|package|fn|use|func)\s|=>|\b(?:function|const|let)\b/m;
  const REST = String.raw`("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|${"`"}(?:\\[\s\S]|[^${"`"}\\])*${"`"}?)|(\b\d[\w.]*)|([A-Za-z_$][\w$]*)`;
  const COMMENTS = {
    hash: String.raw`(#[^\n]*|"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$))|`,
    slash: String.raw`(\/\*[\s\S]*?(?:\*\/|$)|\/\/[^\n]*)|`,
  };
  const KINDS = ["comment", "string", "number", "word"];
  const WORDS = new Set(`abstract address and as assert async await bool break bytes case catch class const continue contract
    def default del delete do elif else emit enum error event except export extends external finally fn for from func function
    global if immutable impl import in indexed int interface internal is lambda let library mapping match memory modifier mut new
    nonlocal not null or override package payable pass pragma private pub public pure raise require return returns revert self
    storage struct super switch this throw throws true try type typeof uint uint256 unchecked use using var view virtual void
    while with yield True False None undefined false calldata constructor static`.split(/\s+/));

  function parts(text, pattern) {
    const found = [];
    let end = 0;
    for (const match of text.matchAll(pattern)) {
      const kind = KINDS[match.slice(1).findIndex((one) => one !== undefined)];
      if (kind === "word" && !WORDS.has(match[0])) continue;
      found.push(["", text.slice(end, match.index)], [kind, match[0]]);
      end = match.index + match[0].length;
    }
    return [...found, ["", text.slice(end)]];
  }
  for (const list of document.querySelectorAll("ol.code:not(.diff)")) {
    const rows = [...list.children], text = rows.map((row) => row.textContent).join("\n");
    const comments = HASHED.test(text) ? COMMENTS.hash : SLASHED.test(text) ? COMMENTS.slash : "";
    if (!comments || text.length > LONGEST) continue;
    const lines = [[]];
    for (const [kind, part] of parts(text, new RegExp(comments + REST, "g"))) {
      for (const [number, piece] of part.split("\n").entries()) {
        if (number) lines.push([]);
        if (piece) lines.at(-1).push(kind ? Object.assign(document.createElement("span"), { className: `c-${kind}`, textContent: piece }) : piece);
      }
    }
    rows.forEach((row, number) => row.replaceChildren(...lines[number]));
  }
})();
