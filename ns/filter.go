package ns

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// A refusal is a system call that the programs' seccomp filter answers with
// an errno: always, or if the low half of one argument has one of the values,
// or none of them. (The kernel, too, looks at the low half only of those that
// are here.)
type refusal struct {
	native, compat []uint32 // its numbers in the machine's two ABIs
	arg            int
	values         []uint32 // none: always
	unless         bool     // if the argument has none of the values
	errno          unix.Errno
}

// refusals are what no mount and no namespace closes.
func (p *plan) refusals() []refusal {
	type numbers struct{ ioctl, addKey, requestKey, keyctl, socket, socketcall []uint32 }
	one := func(n uint32) []uint32 { return []uint32{n} }
	native := numbers{[]uint32{16, 514}, one(248), one(249), one(250), one(41), nil} // 514 is x32's
	compat := numbers{one(54), one(286), one(287), one(288), one(359), one(102)}
	if runtime.GOARCH == "arm64" {
		native = numbers{one(29), one(217), one(218), one(219), one(198), nil}
		compat = numbers{one(54), one(309), one(310), one(311), one(281), one(102)}
	}
	const (
		tioclinux  = 0x541c
		sysSocket  = 1 // of socketcall(2), whose arguments a filter cannot see
		setUpRings = 425
	)
	var list []refusal
	if !p.spec.Terminal || p.spec.Confined {
		// In the caller's session /dev/tty is the caller's terminal: nothing
		// may be typed into it (HAZARDS B14).
		list = append(list, refusal{native: native.ioctl, compat: compat.ioctl, arg: 1, values: []uint32{unix.TIOCSTI, tioclinux}, errno: unix.EPERM})
	}
	if !p.spec.KeepKeyring {
		// A new session keyring is not enough (HAZARDS 28): the keyrings of the
		// caller's user have numbers, which /proc/keys tells, and are open to
		// the same uid in every user namespace. To a program it looks like a
		// kernel without keyrings.
		list = append(list,
			refusal{native: native.addKey, compat: compat.addKey, errno: unix.ENOSYS},
			refusal{native: native.requestKey, compat: compat.requestKey, errno: unix.ENOSYS},
			refusal{native: native.keyctl, compat: compat.keyctl, errno: unix.ENOSYS})
	}
	if p.spec.NetNone {
		// Sockets to the host of a virtual machine know no network namespace
		// (vsock(7)); rings make sockets that no filter sees.
		list = append(list,
			refusal{native: native.socket, compat: compat.socket, values: []uint32{unix.AF_VSOCK}, errno: unix.EAFNOSUPPORT},
			refusal{compat: compat.socketcall, values: []uint32{sysSocket}, errno: unix.EAFNOSUPPORT},
			refusal{native: one(setUpRings), compat: one(setUpRings), errno: unix.ENOSYS})
	}
	if p.spec.Confined {
		list = append(list, outside()...)
	}
	return list
}

// filter compiles refusals to a seccomp filter, one instruction (struct
// sock_filter) a word. What is refused whatever its arguments, and what is not
// in it at all, costs nothing: the kernel keeps a table of that.
func filter(list []refusal) []uint64 {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		and   = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		jump  = unix.BPF_JMP | unix.BPF_JA
		ret   = unix.BPF_RET | unix.BPF_K

		nrAt, archAt, argsAt = 0, 4, 16 // in struct seccomp_data

		x32   = 0x40000000 // __X32_SYSCALL_BIT
		deny  = 0x00050000
		allow = 0x7fff0000
	)
	nativeArch, compatArch := uint32(unix.AUDIT_ARCH_X86_64), uint32(unix.AUDIT_ARCH_I386)
	if runtime.GOARCH == "arm64" {
		nativeArch, compatArch = unix.AUDIT_ARCH_AARCH64, unix.AUDIT_ARCH_ARM
	}
	in := func(code uint16, k uint32, yes, no int) uint64 {
		return uint64(code) | uint64(yes)<<16 | uint64(no)<<24 | uint64(k)<<32
	}
	// The answer to each refusal, to be jumped over.
	answers := func(r refusal) []uint64 {
		if len(r.values) == 0 {
			return []uint64{in(ret, deny|uint32(r.errno), 0, 0)}
		}
		out := []uint64{in(load, uint32(argsAt+8*r.arg), 0, 0)}
		// Whatever is not refused goes on to the next refusal, with the number
		// loaded again.
		refuse := []uint64{in(ret, deny|uint32(r.errno), 0, 0)}
		pass := []uint64{in(load, nrAt, 0, 0), in(and, ^uint32(x32), 0, 0)}
		for i, v := range r.values {
			to := len(r.values) - i - 1 // behind the last comparison
			if r.unless {
				to += len(refuse)
			} else {
				to += len(pass) + 1
			}
			out = append(out, in(equal, v, to, 0))
		}
		if r.unless {
			return append(append(out, refuse...), pass...)
		}
		return append(append(append(out, pass...), in(jump, uint32(len(refuse)), 0, 0)), refuse...)
	}
	abi := func(numbers func(refusal) []uint32) []uint64 {
		out := []uint64{in(load, nrAt, 0, 0), in(and, ^uint32(x32), 0, 0)}
		for _, r := range list {
			a := answers(r)
			for _, nr := range numbers(r) {
				out = append(append(out, in(equal, nr, 0, len(a))), a...)
			}
		}
		return append(out, in(ret, allow, 0, 0))
	}
	native := abi(func(r refusal) []uint32 { return r.native })
	compat := abi(func(r refusal) []uint32 { return r.compat })
	out := []uint64{in(load, archAt, 0, 0), in(equal, nativeArch, 1, 0), in(jump, uint32(len(native)), 0, 0)}
	out = append(out, native...)
	out = append(out, in(equal, compatArch, 1, 0), in(ret, allow, 0, 0))
	return append(out, compat...)
}
