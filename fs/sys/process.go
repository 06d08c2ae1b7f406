package sys

import (
	"fmt"
	"os"
	"strings"
)

// Process reads what the kernel says of a process (proc_pid_stat(5)): its name,
// and the fields from the third on, which is its state.
func Process(pid int) (name string, fields []string, err error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	// "12 (comm) S 1 …"; the name may hold anything.
	open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if open < 0 || end < open {
		return "", nil, fmt.Errorf("%s: %q", path, text)
	}
	return string(text[open+1 : end]), strings.Fields(string(text[end+1:])), nil
}
