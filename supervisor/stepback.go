package supervisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stepBack gives the processes of killed sessions the lowest priority. They
// have only to give back what they hold; with gigabytes of memory that keeps a
// processor busy for longer than a commit takes, which is what somebody waits
// for. It is a kindness: what cannot be had is left.
func stepBack(losers []*variant) {
	const most = 8 // of one session: of many the last are small, and asking costs too
	for _, v := range losers {
		if v.init == 0 {
			continue
		}
		list := []int{v.init}
		for i := 0; i < len(list) && i < most; i++ {
			_ = unix.Setpriority(unix.PRIO_PROCESS, list[i], 19)
			list = append(list, childrenOf(list[i])...)
		}
	}
}

// childrenOf lists the children of a process's first thread; none where the
// kernel has no such file (CONFIG_PROC_CHILDREN).
func childrenOf(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var list []int
	for f := range strings.FieldsSeq(string(text)) {
		if n, err := strconv.Atoi(f); err == nil {
			list = append(list, n)
		}
	}
	return list
}
