package ns

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// outside are the ways to act on what is outside that namespaces would close
// and that Landlock knows nothing of, nor does a mount stand in them.
func outside() []refusal {
	type pair struct{ native, compat []uint32 }
	at := func(amd64, i386, arm64, arm []uint32) pair {
		if runtime.GOARCH == "arm64" {
			return pair{arm64, arm}
		}
		return pair{amd64, i386}
	}
	n := func(numbers ...uint32) []uint32 { return numbers }
	var list []refusal
	refuse := func(calls pair, arg int, unless bool, errno unix.Errno, values ...uint32) {
		list = append(list, refusal{native: calls.native, compat: calls.compat, arg: arg, values: values, unless: unless, errno: errno})
	}
	socketcall := at(nil, n(102), nil, n(102))

	// Who listens on a path runs commands for whoever connects (HAZARDS 3), and
	// Landlock does not ask about connect(2) by path. A pair of packet sockets can
	// send to any path. What socketcall(2) makes a filter cannot see.
	const sysSocket, sysSocketpair = 1, 8
	refuse(at(n(41), n(359), n(198), n(281)), 0, false, unix.EACCES, unix.AF_UNIX)
	var packets []uint32
	for _, typ := range []uint32{unix.SOCK_DGRAM, unix.SOCK_RAW} { // of this family, both are the same (net/unix)
		for _, flags := range []uint32{0, unix.SOCK_CLOEXEC, unix.SOCK_NONBLOCK, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK} {
			packets = append(packets, typ|flags)
		}
	}
	refuse(at(n(53), n(360), n(199), n(288)), 1, false, unix.EACCES, packets...)
	refuse(socketcall, 0, false, unix.EACCES, sysSocket, sysSocketpair)
	// Rings open and connect past every filter.
	refuse(at(n(425), n(425), n(425), n(425)), 0, false, unix.ENOSYS)

	// The caller's IPC objects, which have numbers, and queues, which have names.
	refuse(at(
		n(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240, 241),           // shm*, sem*, msg*, mq_open, mq_unlink
		n(117, 393, 394, 395, 396, 397, 399, 400, 401, 402, 420, 277, 278), // ipc first
		n(194, 196, 195, 190, 193, 191, 186, 189, 188, 187, 192, 180, 181), //
		n(298, 299, 300, 301, 302, 303, 304, 305, 307, 308, 312, 420, 274, 275)), 0, false, unix.ENOSYS)

	// Limits, priorities and processors of any process of the user: by a limit of
	// time the kernel itself kills. One's own go by 0.
	const ioprioProcess = 1
	for _, c := range []pair{
		at(n(302), n(340), n(261), n(369)), // prlimit64
		at(n(142), n(154), n(118), n(154)), // sched_setparam
		at(n(144), n(156), n(119), n(156)), // sched_setscheduler
		at(n(203), n(241), n(122), n(241)), // sched_setaffinity
		at(n(314), n(351), n(274), n(380)), // sched_setattr
	} {
		refuse(c, 0, true, unix.EPERM, 0)
	}
	setpriority, ioprioSet := at(n(141), n(97), n(140), n(97)), at(n(251), n(289), n(30), n(314))
	refuse(setpriority, 0, true, unix.EPERM, unix.PRIO_PROCESS)
	refuse(setpriority, 1, true, unix.EPERM, 0)
	refuse(ioprioSet, 0, true, unix.EPERM, ioprioProcess)
	refuse(ioprioSet, 1, true, unix.EPERM, 0)

	// Attributes are set by path, and Landlock does not ask: those that our layers
	// and the store are told by are among them. To a program it looks like a file
	// system that has none.
	const setxattrat, removexattrat, fileSetattr = 463, 466, 469
	refuse(at(
		n(188, 189, 190, 197, 198, 199, setxattrat, removexattrat), // setxattr, removexattr, and l… and f…
		n(226, 227, 228, 235, 236, 237, setxattrat, removexattrat),
		n(5, 6, 7, 14, 15, 16, setxattrat, removexattrat),
		n(226, 227, 228, 235, 236, 237, setxattrat, removexattrat)), 0, false, unix.EOPNOTSUPP)
	refuse(at(n(fileSetattr), n(fileSetattr), n(fileSetattr), n(fileSetattr)), 0, false, unix.ENOSYS)

	// What a file or directory that was opened for reading takes as well: flags,
	// generations, verity, which is for ever, encryption, and subvolumes of btrfs
	// and bcachefs.
	refuse(at(n(16, 514), n(54), n(29), n(54)), 1, false, unix.ENOTTY,
		0x40086602, 0x40046602, 0x401c5820, // FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR
		0x40087602, 0x40047602, 0x40086604, 0x40046604, // FS_IOC_SETVERSION, EXT4_IOC_SETVERSION, and of 32 bits
		0x40806685, 0x800c6613, 0xc0506617, 0xc0406618, // FS_IOC_ENABLE_VERITY, SET_ENCRYPTION_POLICY, ADD_, REMOVE_ENCRYPTION_KEY
		0x50009401, 0x50009417, 0x5000940e, 0x50009418, // BTRFS_IOC_SNAP_CREATE, _V2, SUBVOL_CREATE, _V2
		0x5000940f, 0x5000943f, 0x4008941a, // BTRFS_IOC_SNAP_DESTROY, _V2, SUBVOL_SETFLAGS
		0xc0c89425, 0xc0c09425, // BTRFS_IOC_SET_RECEIVED_SUBVOL, of 32 bits
		0x4020bc10, 0x4020bc11) // BCH_IOCTL_SUBVOLUME_CREATE, _DESTROY
	return list
}
