def pack(sizes, room):
    """Next fit."""
    boxes = [[]]
    for s in sizes:
        if sum(boxes[-1]) + s > room:
            boxes.append([])
        boxes[-1].append(s)
    return boxes
