"""The chain: JSON-RPC, the contracts, the wallet and the sender of transactions."""
