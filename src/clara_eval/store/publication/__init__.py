"""Publication of an evaluation's documents in Cloudflare KV and on IPFS."""
