def merge(ranges):
    found = []
    for start, end in sorted(ranges):
        if start > end:
            raise ValueError(f"{start} is after {end}")
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return found
