"""Source code as trees: parsers for six languages, bounded in time, and what two trees have in common.

Text of a stranger comes in; a tree, or None where it is too broken, goes out. Nothing here knows challenges or judges.
"""
