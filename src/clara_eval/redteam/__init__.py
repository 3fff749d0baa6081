"""Attacks on the product, measured: words to the reader, lies in numbers, copies, clones, faults."""
