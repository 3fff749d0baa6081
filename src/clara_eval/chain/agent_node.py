"""The node as the actions of posters and agents see it: plain calls, many views at once, refusals in words.

Fulfils `actions.Node` over the same `Rpc` that the evaluator reads through: failover, batches, and no answer from a
chain that is not the network's. A contract's refusal becomes `Refused`, a wallet's problem `CannotAct`; what a node
does not have is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clara_eval.chain.rpc import NULL_MEANS_MISSING, Call, NodeRefusal, Rpc
from clara_eval.chain.rpc_errors import Meaning
from clara_eval.contracts.refusals import decode_refusal
from clara_eval.use_cases.port import CannotAct, Refused, View
from clara_eval.use_cases.untrusted import fence

_WALLET_PROBLEMS = {
    Meaning.INSUFFICIENT_FUNDS: "The wallet has too little ETH for gas.",
    Meaning.NONCE_TOO_LOW: "Another transaction of this wallet came first.",
    Meaning.NONCE_TOO_HIGH: "An earlier transaction of this wallet is still missing.",
    Meaning.REPLACEMENT_UNDERPRICED: "Another transaction of this wallet is still waiting.",
    Meaning.FEE_TOO_LOW: "The network's fees rose while this was prepared.",
}


def _viewed(found: Any) -> str | None:
    if not isinstance(found, NodeRefusal):
        return str(found)
    if found.meaning is Meaning.REVERTED:
        return None
    raise found


def refused(data: object) -> Refused:
    """The contract's refusal in our words; its own words, which a stranger may have written, stand in a fence."""
    known = decode_refusal(data) if isinstance(data, (str, bytes)) else None
    if known is None:
        return Refused("The contract refused, without a reason that we know.", None)
    if known.name == "Error":
        return Refused(
            f"A contract refused in its own words:\n{fence(str(known.values[0]), 'contract')['text']}", known
        )
    return Refused(str(known), known)


class AgentNode:
    """One network for one caller."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def ask(self, method: str, *params: Any) -> Any:
        """One call; null for what does not exist."""
        found = (await self._rpc.ask_many([Call(method, params)]))[0]
        return self._result(method, found) if isinstance(found, NodeRefusal) else found

    async def views(self, calls: Sequence[View], block: str = "latest") -> list[str | None]:
        """The answers of many contracts; None where one refused."""
        asked = [Call("eth_call", ({"to": call.to, "data": call.data}, block)) for call in calls]
        found = await self._rpc.ask_many(asked) if asked else []
        return [_viewed(item) for item in found]

    def _result(self, method: str, refusal: NodeRefusal) -> None:
        if refusal.meaning is Meaning.MISSING and method in NULL_MEANS_MISSING:
            return
        if refusal.meaning is Meaning.ALREADY_KNOWN and method == "eth_sendRawTransaction":
            return
        if refusal.meaning is Meaning.REVERTED:
            raise refused(refusal.data)
        if refusal.meaning in _WALLET_PROBLEMS:
            raise CannotAct(_WALLET_PROBLEMS[refusal.meaning], remedy="Mend that, then try again.") from refusal
        raise refusal
