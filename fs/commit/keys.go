package commit

import (
	"crypto/sha256"

	"try/fs/sys"
)

// key stands for a path. The paths of a tree a hundred thousand directories
// deep would take gigabytes, and their joining quadratic time; a key is made
// from that of the directory above.
type key [16]byte

func (k key) child(name string) key {
	var fixed [16 + 256]byte
	b := append(append(fixed[:0], k[:]...), name...)
	h := sha256.Sum256(b)
	return key(h[:16])
}

// keys makes the keys of nodes; top is that of a nil node.
type keys struct {
	top key
	met map[*sys.Node]key // directories
}

func newKeys(top key) *keys { return &keys{top, map[*sys.Node]key{}} }

func (k *keys) of(n *sys.Node) key {
	if n == nil {
		return k.top
	}
	return k.dir(n.Parent).child(n.Name)
}

// dir is of for a node that has others below it, and remembers.
func (k *keys) dir(n *sys.Node) key {
	var chain []*sys.Node
	at := k.top
	for ; n != nil; n = n.Parent {
		if known, ok := k.met[n]; ok {
			at = known
			break
		}
		chain = append(chain, n)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		at = at.child(chain[i].Name)
		k.met[chain[i]] = at
	}
	return at
}
