package fusefs

import (
	"encoding/binary"
	"fmt"
)

// The kernel's requests (include/uapi/linux/fuse.h, enum fuse_opcode).
const (
	opForget      = 2
	opOpen        = 14
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opOpenDir     = 27
	opFsyncDir    = 30
	opCreate      = 35
	opInterrupt   = 36
	opDestroy     = 38
	opNotifyReply = 41
	opBatchForget = 42
)

var opNames = map[uint32]string{
	1: "LOOKUP", 2: "FORGET", 3: "GETATTR", 4: "SETATTR", 5: "READLINK", 6: "SYMLINK", 8: "MKNOD", 9: "MKDIR",
	10: "UNLINK", 11: "RMDIR", 12: "RENAME", 13: "LINK", 14: "OPEN", 15: "READ", 16: "WRITE", 17: "STATFS",
	18: "RELEASE", 20: "FSYNC", 21: "SETXATTR", 22: "GETXATTR", 23: "LISTXATTR", 24: "REMOVEXATTR", 25: "FLUSH",
	26: "INIT", 27: "OPENDIR", 28: "READDIR", 29: "RELEASEDIR", 30: "FSYNCDIR", 31: "GETLK", 32: "SETLK",
	33: "SETLKW", 34: "ACCESS", 35: "CREATE", 36: "INTERRUPT", 37: "BMAP", 38: "DESTROY", 39: "IOCTL", 40: "POLL",
	41: "NOTIFY_REPLY", 42: "BATCH_FORGET", 43: "FALLOCATE", 44: "READDIRPLUS", 45: "RENAME2", 46: "LSEEK",
	47: "COPY_FILE_RANGE", 48: "SETUPMAPPING", 49: "REMOVEMAPPING", 50: "SYNCFS", 51: "TMPFILE", 52: "STATX",
	53: "COPY_FILE_RANGE_64",
}

// changes are the requests that change something.
var changes = map[uint32]bool{
	4: true, 6: true, 8: true, 9: true, 10: true, 11: true, 12: true, 13: true, 16: true, 21: true, 24: true,
	35: true, 43: true, 45: true, 47: true, 51: true,
}

func opName(op uint32) string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return fmt.Sprintf("request %d", op)
}

// opcode is the second field of fuse_in_header.
func opcode(in []byte) uint32 { return binary.NativeEndian.Uint32(in[4:]) }

func (c *conn) calls() map[string]uint64 {
	calls := make(map[string]uint64)
	for op := range c.count {
		if n := c.count[op].Load(); n > 0 {
			calls[opName(uint32(op))] = n
		}
	}
	return calls
}
