"""The bytes behind each submission: fetched, checked against the chain, and cleared of copies."""
