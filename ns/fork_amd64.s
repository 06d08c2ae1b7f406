#include "textflag.h"

// func fork(flags, stack, pidfd, entry uintptr, c *child, program int32) (pid, errno uintptr)
//
// The kernel keeps all registers but AX, CX and R11, in both processes.
TEXT ·fork(SB), NOSPLIT, $0-64
	MOVQ    flags+0(FP), DI
	MOVQ    stack+8(FP), SI
	MOVQ    pidfd+16(FP), DX
	MOVQ    entry+24(FP), R9
	MOVQ    c+32(FP), R12
	MOVLQSX program+40(FP), BX
	XORL    R10, R10
	XORL    R8, R8
	MOVQ    $56, AX // clone
	SYSCALL
	CMPQ    AX, $0xfffffffffffff001
	JCC     failed
	TESTQ   AX, AX
	JZ      child
	MOVQ    AX, pid+48(FP)
	MOVQ    $0, errno+56(FP)
	RET

failed:
	NEGQ AX
	MOVQ $0, pid+48(FP)
	MOVQ AX, errno+56(FP)
	RET

child:
	MOVQ  R12, AX // with BX the arguments of a Go function (ABIInternal)
	XORPS X15, X15
	CALL  R9
	INT   $3      // it does not return
