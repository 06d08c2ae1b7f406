#!/bin/sh
# Installs the packages of package.json in a branch: first to look, then to keep.
set -eu
cd "$(dirname "$0")"

echo "== to look: all of it is dropped"
try --abort npm install
test ! -e node_modules

echo "== to keep"
try --commit npm install
node index.js
