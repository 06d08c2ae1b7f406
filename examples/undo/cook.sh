#!/bin/sh
# Cooks what the recipe says.
boil() { echo "boil $1"; }
while read -r verb what; do
	case $verb in
	boil) boil "$what" ;;
	*) echo "cannot $verb" >&2; exit 1 ;;
	esac
done <recipe.txt
