package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// flagField is one field of a struct of flags, as far as the command line has to be
// understood before kong sees it.
type flagField struct {
	field             reflect.StructField // Index leads there from the outermost struct
	name              string
	short             string
	isBool, negatable bool
}

// flagsOf lists the flags of a struct, those of embedded ones included.
func flagsOf(t reflect.Type) []flagField {
	var list []flagField
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		e := flagField{field: f, name: f.Tag.Get("name"), short: f.Tag.Get("short")}
		if e.name == "" {
			e.name = kebab(f.Name)
		}
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		e.isBool = kind.Kind() == reflect.Bool
		_, e.negatable = f.Tag.Lookup("negatable")
		list = append(list, e)
	}
	return list
}

// kebab is how kong names the flag of a field: OnSuccess is --on-success.
func kebab(field string) string {
	var b strings.Builder
	for i, r := range field {
		if upper := r >= 'A' && r <= 'Z'; upper && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// named lists the flags that an argument names, and says whether it takes the
// next argument for the value of the last. What is no flag of ours names none:
// kong says so.
func named(arg string, known []flagField) (list []flagField, next bool) {
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		name, _, valued := strings.Cut(long, "=")
		for _, f := range known {
			if f.name == name || f.negatable && "no-"+f.name == name {
				return []flagField{f}, !f.isBool && !valued
			}
		}
		return nil, false
	}
	for i, short := range arg[1:] {
		k := slices.IndexFunc(known, func(f flagField) bool { return f.short == string(short) })
		if k < 0 {
			return nil, false
		}
		list = append(list, known[k])
		if !known[k].isBool {
			return list, i+1+len(string(short)) == len(arg) // "-b NAME", not "-bNAME"
		}
	}
	return list, false
}

// parseFlags has kong parse args into the struct that into points to. Making a
// parser costs kong 20 µs for each flag that it could meet, which would be a
// tenth of a start: it is shown a struct with those that are there. What kong
// would refuse is refused by the whole parser, which knows what to suggest.
//
// kong sees our own flags only: it would replace bytes that are no UTF-8 in
// CMD, and take a CMD behind "--" for a reserved word (FACTS G1).
func parseFlags(into any, known []flagField, args []string) error {
	whole := reflect.ValueOf(into).Elem()
	var used []flagField
	for i := 0; i < len(args); i++ {
		list, next := named(args[i], known)
		if list == nil {
			return parseWith(into, args)
		}
		for _, f := range list {
			if !slices.ContainsFunc(used, func(u flagField) bool { return u.name == f.name }) {
				used = append(used, f)
			}
		}
		if next {
			i++
		}
	}
	fields := make([]reflect.StructField, len(used))
	for i, f := range used {
		fields[i] = reflect.StructField{Name: f.field.Name, Type: f.field.Type, Tag: f.field.Tag}
	}
	part := reflect.New(reflect.StructOf(fields))
	if err := parseWith(part.Interface(), args); err != nil {
		return parseWith(into, args)
	}
	for i, f := range used {
		whole.FieldByIndex(f.field.Index).Set(part.Elem().Field(i))
	}
	return nil
}

func parseWith(into any, args []string) error {
	parser, err := kong.New(into, parserOptions()...)
	if err != nil {
		return fmt.Errorf("set up the command line: %w", err)
	}
	_, err = parser.Parse(args)
	return err
}
