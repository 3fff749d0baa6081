"""Sort once, then go through the ranges from left to right."""


def merge(ranges):
    ordered = sorted(ranges)
    if any(start > end for start, end in ordered):
        raise ValueError("a range ends before it starts")
    result = []
    for start, end in ordered:
        if not result or result[-1][1] < start:
            result.append([start, end])
        elif result[-1][1] < end:
            result[-1][1] = end
    return result
