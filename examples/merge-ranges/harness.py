"""Merging ranges: every test_… must pass; fuel_many is what the work of test_many costs."""

from random import Random


def drawn(seed, count):
    """Inputs that nobody knows before the deadline."""
    rng = Random(seed)
    starts = [rng.randrange(4 * count) for _ in range(count)]
    return [[start, start + rng.randrange(5)] for start in starts]


def merged(ranges):
    """The right answer, computed here: the submission's word is not taken for it."""
    found = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return found


def check(submission, ranges):
    answer = [list(one) for one in submission.merge(ranges)]
    assert answer == merged(ranges), f"merge({ranges[:5]}...) gave {answer[:5]}..."


def test_known(submission):
    check(submission, [])
    check(submission, [[5, 6], [1, 3]])
    check(submission, [[1, 10], [2, 3]])


def test_touching(submission):
    check(submission, [[1, 2], [2, 5], [7, 7]])


def test_refuses_a_pair_the_wrong_way_round(submission):
    try:
        submission.merge([[3, 1]])
    except ValueError:
        return
    raise AssertionError("merge([[3, 1]]) must raise ValueError")


def test_drawn(submission, seed):
    for count in (1, 2, 9, 40):
        check(submission, drawn(f"{seed}{count}", count))


def test_many(submission, seed):
    check(submission, drawn(seed, 150))
