//go:build !amd64

package main

import "golang.org/x/sys/unix"

// int80 is for machines whose second ABI cannot be called from the first.
func int80(_, _, _, _ uintptr) uintptr {
	refused := uintptr(unix.EPERM)
	return -refused
}
