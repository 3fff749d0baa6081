"""The on-chain challenge as a venue: read, prepare, evaluate, post, and what is kept about it."""
