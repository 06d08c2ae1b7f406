#!/bin/sh
# Commits too early, twice, and undoes it.
set -e
state() {
	stat -c '%n %a %y' cook.sh notes.old recipe.txt 2>&1
	cat cook.sh notes.old recipe.txt 2>&1
}
state >/dev/null
before=$(state)

try -y -q ./tidy.sh
echo "after the commit:"; ls *.txt *.old 2>/dev/null || true
try undo -q
echo "after the undo:"; ls *.txt *.old
[ "$(state)" = "$before" ] && echo "everything is as it was"

try -y -q ./tidy.sh
echo "and pepper" >>recipe.txt
if ! try undo -q 2>refused; then
	echo "refused:"; grep -o 'left: .*' refused
fi
try undo -q --partial 2>/dev/null
tail -n 1 recipe.txt
./cook.sh 2>&1 || true
try redo -q
ls notes.old 2>/dev/null || echo "and forward again"
rm refused
