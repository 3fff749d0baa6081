"""Measured attacks on the product: prompt injection, false claims, copies, clones, faults."""
