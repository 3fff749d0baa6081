"""Attacks on the product itself, measured: words to the reader, lies in numbers, copies, clones, faults.

Out goes a `Report`: every figure beside its target, with the bound that so many trials allow. Nothing is posted and no
chain is needed; the parts that decide about money are the product's own.
"""
