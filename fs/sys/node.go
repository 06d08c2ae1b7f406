package sys

// Node is one name on the way down from a root. A path is a chain of nodes,
// so that a tree a hundred thousand directories deep costs one node for each
// of them, and is joined only when somebody asks.
type Node struct {
	Parent *Node // nil: Name is directly below the root
	Name   string
}

// Path joins the names from the root down to n with slashes. The path of a
// nil node, the root itself, is "".
func (n *Node) Path() string {
	if n == nil {
		return ""
	}
	if n.Parent == nil {
		return n.Name
	}
	size := -1
	for p := n; p != nil; p = p.Parent {
		size += len(p.Name) + 1
	}
	b := make([]byte, size)
	end := size
	for p := n; p != nil; p = p.Parent {
		end -= copy(b[end-len(p.Name):], p.Name)
		if end > 0 {
			end--
			b[end] = '/'
		}
	}
	return string(b)
}

// Depth counts the names from the root to n: 0 for the root itself.
func (n *Node) Depth() int {
	depth := 0
	for ; n != nil; n = n.Parent {
		depth++
	}
	return depth
}

// above is the name of the directory that n is in, for messages.
func (n *Node) above() *Node {
	if n.Parent == nil {
		return &Node{Name: n.Name + "/.."}
	}
	return n.Parent
}

// shown is the path for messages: of a very long one only the end.
func (n *Node) shown() string {
	const most = 8 << 10
	size := 0
	for p := n; p != nil; p = p.Parent {
		if size += len(p.Name) + 1; size > most {
			return "…/" + (&Node{Name: n.Name}).Path()
		}
	}
	path := n.Path()
	if len(path) > 1 && path[0] == '/' && path[1] == '/' { // the root is "/"
		path = path[1:]
	}
	return path
}
