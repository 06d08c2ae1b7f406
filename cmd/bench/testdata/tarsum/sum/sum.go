// Package sum reads archives.
package sum

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"
)

// File is one file of an archive.
type File struct {
	Name     string    `json:"name"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Sum      string    `json:"sha256"`
}

// Archive reads a tar archive, compressed or not.
func Archive(r io.Reader) ([]File, error) {
	b := bufio.NewReader(r)
	if magic, err := b.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, err
		}
		return files(z)
	}
	return files(b)
}

func files(r io.Reader) ([]File, error) {
	var list []File
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		hash := sha256.New()
		n, err := io.Copy(hash, t)
		if err != nil {
			return nil, err
		}
		list = append(list, File{h.Name, n, h.ModTime, hex.EncodeToString(hash.Sum(nil))})
	}
}
