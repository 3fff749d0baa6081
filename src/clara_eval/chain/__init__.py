"""The chain over JSON-RPC: reading in batches, sending once."""
