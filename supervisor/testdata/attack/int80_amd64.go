package main

// int80 is a system call of the 32-bit ABI.
func int80(nr, a, b, c uintptr) uintptr
