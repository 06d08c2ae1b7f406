#!/usr/bin/env python3
"""What an agent does with `try --json`: first it speculates, then it takes the
best of N. The candidates stand for what a model would write."""
import json
import os
import subprocess
import sys

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def branch(*argv):
    """Runs `try --json` and returns the document, and what the command printed."""
    run = subprocess.run(["try", "--json", "-q", *argv], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not run.stdout:
        sys.exit(run.stderr)
    return json.loads(run.stdout), run.stderr.strip()


def settle(word, name):
    """Commits or aborts a branch that was kept."""
    run = subprocess.run(["try", word, "--json", "-q", name], stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"try {word} {name}: {run.stdout}")
    return json.loads(run.stdout)


def paths(document):
    return sorted(c["path"] for r in document["roots"] for c in r["changes"])


# Speculate: do it, see what it would change, and drop it.
document, said = branch("--abort", "--", sys.executable, "score.py")
print(f"as it is: {said} boxes, would write {', '.join(paths(document))}, {document['settled']}")

# Best of N: each candidate in a branch of its own, kept if it works.
best = None
for name in sorted(os.listdir("candidates")):
    document, said = branch("--on-success", "keep", "--on-failure", "abort", "--",
                            "sh", "-c", 'cp "candidates/$1" pack.py && exec "$2" score.py', "sh", name, sys.executable)
    if document["settled"] != "kept":
        print(f"{name}: {said}, {document['settled']}")
        continue
    score = int(said)
    print(f"{name}: {said} boxes, kept as a branch that changes {', '.join(paths(document))}")
    if best and best[0] <= score:
        settle("abort", document["branch"])
        continue
    if best:
        settle("abort", best[1])
    best = score, document["branch"], name

if not best:
    sys.exit("no candidate works")
score, name, file = best
print(f"{file} is the best: {settle('commit', name)['settled']}")
