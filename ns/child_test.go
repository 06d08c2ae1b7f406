package ns

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestChildCallsNothingElse reads the machine code of the forked child: from
// its entry on, nothing may be called that allocates, grows a stack, takes a
// lock or marks a pointer. The linker has checked the depth of the stack.
func TestChildCallsNothingElse(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("knows the calls of amd64 only")
	}
	// The binary of a test has no symbols.
	exe := filepath.Join(t.TempDir(), "try")
	if out, err := exec.Command("go", "build", "-o", exe, "try/cmd/try").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	out, err := exec.Command("go", "tool", "objdump", "-s", `^try/ns\.(\(\*child\)\.|fork|enter)|^syscall\.RawSyscall6$|^internal/runtime/syscall/linux\.Syscall6$`, exe).Output()
	if err != nil {
		t.Fatalf("go tool objdump: %v", err)
	}
	calls := map[string][]string{} // function → what it calls
	name := ""
	call := regexp.MustCompile(`\t(?:CALL|JMP) ([^\s]*[a-zA-Z_][^\s]*\(SB\)|[A-Z][A-Z0-9]+)\s*$`)
	scan := bufio.NewScanner(strings.NewReader(string(out)))
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		line := scan.Text()
		if f, ok := strings.CutPrefix(line, "TEXT "); ok {
			name = strings.Split(f, "(SB)")[0]
			calls[name] = nil
			continue
		}
		if m := call.FindStringSubmatch(line); m != nil {
			calls[name] = append(calls[name], strings.TrimSuffix(m[1], "(SB)"))
		}
	}
	const entry = "try/ns.enter"
	if len(calls[entry]) == 0 {
		t.Fatalf("found no calls of %s in %d functions", entry, len(calls))
	}
	seen := map[string]bool{}
	var visit func(name, from string)
	visit = func(name, from string) {
		if seen[name] {
			return
		}
		seen[name] = true
		// What is only reached when an index is out of range is a bug anyway.
		if strings.HasPrefix(name, "runtime.panic") {
			return
		}
		callees, known := calls[name]
		if name == "R9" && from == "try/ns.fork.abi0" {
			return // of a child of its own: to enter
		}
		if !known {
			t.Errorf("%s calls %s", from, name)
		}
		for _, c := range callees {
			visit(c, name)
		}
	}
	visit(entry, "")
	for _, must := range []string{"try/ns.(*child).run", "try/ns.(*child).obey", "try/ns.(*child).name", "try/ns.(*child).become", "try/ns.(*child).guard", "try/ns.(*child).testify"} {
		if !seen[must] {
			t.Errorf("%s is not reached from %s: the reading of the code is wrong", must, entry)
		}
	}
}
