package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// perDir is how many files of a made tree lie in one directory.
const perDir = 100

// fill makes n small files below dir, in directories of perDir.
func (l *lab) fill(dir string, n int) error {
	content := []byte("a small file\n")
	for i := range n {
		if i%perDir == 0 {
			if err := l.ctx.Err(); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("d%04d", i/perDir)), 0o755); err != nil {
				return err
			}
		}
		name := filepath.Join(dir, fmt.Sprintf("d%04d", i/perDir), fmt.Sprintf("f%02d.txt", i%perDir))
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// text is n bytes of lines of letters: it compresses as source text does.
func text(r *rand.Rand, n int) []byte {
	words := []string{"branch", "layer", "return", "func", "if", "err", "commit", "session", "{", "}", "0x"}
	b := make([]byte, 0, n+16)
	for len(b) < n {
		b = append(b, words[r.IntN(len(words))]...)
		if r.IntN(8) == 0 {
			b = fmt.Appendf(b, "%x\n", r.Uint32())
		} else {
			b = append(b, ' ')
		}
	}
	return b[:n]
}

// block is what large files are written and read with, 64 KB as in the
// figures of the branch contexts paper.
const block = 64 << 10

// large writes size bytes that do not compress to a file, new or not.
func large(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	b := make([]byte, block)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	for size > 0 {
		k, err := f.Write(b[:min(size, block)])
		if err != nil {
			return errors.Join(err, f.Close())
		}
		size -= int64(k)
	}
	return f.Close()
}

// through reads a file to its end.
func through(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	b := make([]byte, block)
	for {
		if _, err := f.Read(b); err == io.EOF {
			return f.Close()
		} else if err != nil {
			return errors.Join(err, f.Close())
		}
	}
}

// put writes count files of size bytes into dir: over those that are there,
// or new ones. It is what a session does whose settling is measured.
func put(dir string, count int, size int64) error { return write(dir, count, size, 2) }

// lay makes such files beforehand, with another content than what put will
// write over them.
func lay(dir string, count int, size int64) error { return write(dir, count, size, 3) }

func write(dir string, count int, size int64, seed byte) error {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	for i := range count {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%05d", i)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
