"""Fast, and wrong: ranges that only touch stay apart, and a pair the wrong way round is taken."""


def merge(ranges):
    answer = []
    for low, high in sorted(ranges):
        if answer and low < answer[-1][1]:
            answer[-1] = [answer[-1][0], max(high, answer[-1][1])]
            continue
        answer.append([low, high])
    return answer
