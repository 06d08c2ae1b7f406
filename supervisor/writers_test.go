package supervisor_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestNothingSavedIsLost: a saver that renames a new version over the file, an
// appender that opens it for each line, and one that keeps it open, against
// commits of branches that change the same files (H9).
func TestNothingSavedIsLost(t *testing.T) {
	commits := 60
	if n, err := strconv.Atoi(os.Getenv("TRY_CRASHES")); err == nil {
		commits = n
	}
	r := newRig(t)
	r.write("f", "save 0")
	r.write("log", "")
	r.write("kept", "")
	r.write("free", "")
	saver := r.helper("save", r.at("f"), r.at("log"), r.at("kept"))
	in, err := saver.StdinPipe()
	r.must(err)
	out, err := saver.StdoutPipe()
	r.must(err)
	p := r.begin(saver)
	said := bufio.NewScanner(out)
	if !said.Scan() || said.Text() != "ready" {
		t.Fatalf("the saver says %q", said.Text())
	}
	rest := func() (lines int) {
		_ = in.Close()
		for said.Scan() {
			if n, err := strconv.Atoi(said.Text()); err == nil {
				lines = n
				continue
			}
			t.Error(said.Text())
		}
		return lines
	}
	defer rest() // what it says is why something is wrong here
	done := map[string]int{}
	for n := range commits {
		name := fmt.Sprint("b", n)
		var o *outcome
		switch n % 3 {
		case 0:
			o = r.sh("-y", "-q", "-b", name, `echo "branch saw: $(cat f)" > f.new; mv f.new f`)
		case 1:
			o = r.sh("-y", "-q", "-b", name, "echo branch >> log")
		case 2:
			o = r.sh("-y", "-q", "-b", name, "echo branch >> kept").want(125)
			if !strings.Contains(o.stderr, "in the base since the fork") {
				o.says("kept: open for writing by", "(pid ")
			}
		}
		done[fmt.Sprintf("%s %d", []string{"f", "log", "kept"}[n%3], o.code)]++
		if o.code == 125 {
			r.try("abort", name).want(0)
		}
	}
	lines := rest()
	if o := p.wait(); o.code != 0 {
		t.Fatalf("the saver ended with %d: %s", o.code, o.stderr)
	}
	log := r.read("log")
	for n := 1; n <= lines; n++ {
		if !strings.Contains("\n"+log, fmt.Sprintf("\nline %d\n", n)) {
			t.Errorf("line %d of the log is lost", n)
		}
	}
	if strings.Contains(r.read("kept"), "branch") {
		t.Error("a file that is open for writing was displaced")
	}
	t.Logf("%d lines; commits and their exit codes: %v", lines, done)
}

// save keeps saving the first file, adding lines to the second, and writing to
// the third, which it keeps open, until its input ends.
func save(args []string) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	kept, err := os.OpenFile(args[2], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for n := 1; ; n++ {
		now := fmt.Sprintf("save %d", n)
		if err := os.WriteFile(args[0]+".tmp", []byte(now), 0o644); err != nil {
			return err
		}
		if err := os.Rename(args[0]+".tmp", args[0]); err != nil {
			return err
		}
		log, err := os.OpenFile(args[1], os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(log, "line %d\n", n); err != nil {
			return err
		}
		if err := log.Close(); err != nil {
			return err
		}
		fmt.Println(n)
		if _, err := fmt.Fprintf(kept, "line %d\n", n); err != nil {
			return err
		}
		// Nobody else saves: until the next time it is ours, or a branch's that saw it. A commit that began before
		// may be on its way back: it has seen only afterwards whose place it took.
		for range 200 + n%7*3000 {
			for began := time.Now(); ; runtime.Gosched() {
				text, err := os.ReadFile(args[0])
				if err != nil {
					return err
				}
				s := strings.TrimSpace(string(text))
				if strings.ReplaceAll(s, "branch saw: ", "") == now {
					break
				}
				if time.Since(began) > 10*time.Second {
					fmt.Printf("saved %q, and found %q\n", now, s)
					return nil
				}
			}
			select {
			case <-ended:
				return kept.Close()
			default:
			}
		}
	}
}
