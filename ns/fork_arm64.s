#include "textflag.h"

// func fork(flags, stack, pidfd, entry uintptr, c *child, program int32) (pid, errno uintptr)
//
// The kernel keeps all registers but R0, in both processes.
TEXT ·fork(SB), NOSPLIT|NOFRAME, $0-64
	MOVD flags+0(FP), R0
	MOVD stack+8(FP), R1
	MOVD pidfd+16(FP), R2
	MOVD entry+24(FP), R9
	MOVD c+32(FP), R10
	MOVW program+40(FP), R11
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $220, R8 // clone
	SVC
	CMN  $4095, R0
	BCS  failed
	CBZ  R0, child
	MOVD R0, pid+48(FP)
	MOVD ZR, errno+56(FP)
	RET

failed:
	NEG  R0, R0
	MOVD ZR, pid+48(FP)
	MOVD R0, errno+56(FP)
	RET

child:
	MOVD R10, R0 // with R1 the arguments of a Go function (ABIInternal)
	MOVD R11, R1
	BL   (R9)
	BRK          // it does not return
