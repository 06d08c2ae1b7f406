"""Packs what items.json lists, writes boxes.json, prints how many boxes it took."""
import json
import sys

sys.dont_write_bytecode = True
from pack import pack

task = json.load(open("items.json"))
boxes = pack(list(task["sizes"]), task["room"])
if sorted(s for b in boxes for s in b) != sorted(task["sizes"]):
    sys.exit("something is lost, or packed twice")
if any(sum(b) > task["room"] for b in boxes):
    sys.exit("a box is too full")
json.dump(boxes, open("boxes.json", "w"))
print(len(boxes))
