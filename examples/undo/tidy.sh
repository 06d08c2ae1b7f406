#!/bin/sh
# Renames boil to simmer, and removes what looks like a backup. Too eager.
set -e
sed -i 's/boil/simmer/g' cook.sh recipe.txt
rm -f *.old
