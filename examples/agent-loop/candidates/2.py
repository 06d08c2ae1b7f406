def pack(sizes, room):
    """First fit, the large ones first."""
    boxes = []
    for s in sorted(sizes, reverse=True):
        for b in boxes:
            if sum(b) + s <= room:
                b.append(s)
                break
        else:
            boxes.append([s])
    return boxes
