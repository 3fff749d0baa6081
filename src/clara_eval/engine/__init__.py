"""The part that runs for months: it looks at the chain, starts what is due, and takes over from workers that died."""
