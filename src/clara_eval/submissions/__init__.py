"""Submissions: fetch their bytes, check them against the chain, and find copies."""
