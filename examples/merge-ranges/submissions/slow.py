"""Right, but every range is compared with all that were kept so far, again and again."""


def overlap(one, other):
    return one[0] <= other[1] and other[0] <= one[1]


def merge(ranges):
    kept = []
    for pair in ranges:
        if pair[0] > pair[1]:
            raise ValueError(pair)
        low, high = pair
        apart = []
        for other in kept:
            if overlap([low, high], other):
                low, high = min(low, other[0]), max(high, other[1])
            else:
                apart.append(other)
        kept = [*apart, [low, high]]
    return sorted(kept)
