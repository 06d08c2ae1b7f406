package branch

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
)

// maxName is the longest name of a branch, in bytes.
const maxName = 64

// CheckName says why name cannot name a branch: [A-Za-z0-9][A-Za-z0-9._-]{0,63},
// and not ending in ".N", which is how a group names its members. A name is
// only ever compared with names in metadata and never becomes part of a path
// (H33); the rule keeps it harmless in messages and on command lines.
func CheckName(name string) error {
	if err := checkForm(name); err != nil {
		return err
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 && isNumber(name[i+1:]) {
		return fmt.Errorf("branch name %q: .%s at the end is for the members of a group", name, name[i+1:])
	}
	return nil
}

// checkForm is CheckName for names that may be a group member's.
func checkForm(name string) error {
	if name == "" {
		return fmt.Errorf("branch name is empty")
	}
	if len(name) > maxName {
		return fmt.Errorf("branch name %.20q…: longer than %d characters", name, maxName)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return fmt.Errorf("branch name %q: only letters, digits, and inside it . _ -", name)
		}
	}
	return nil
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// memberName is the name of member i, from 1, of the group called name.
func memberName(name string, i int) string { return name + "." + strconv.Itoa(i) }

// newID draws the random 128 bits that name a branch, a group or a store on
// disk. It cannot fail: crypto/rand ends the program if the kernel has none.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// isID says whether s can have come from newID.
func isID(s string) bool {
	if len(s) != 32 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// twoWords draws a default name that is not taken. It need not be
// unguessable, only easy to read and type.
func twoWords(taken func(string) bool) string {
	for range 64 {
		name := adjectives[mathrand.IntN(len(adjectives))] + "-" + animals[mathrand.IntN(len(animals))]
		if !taken(name) {
			return name
		}
	}
	return "branch-" + newID()[:12] // thousands of branches
}

var adjectives = strings.Fields(`able agile amber ample azure bold brave breezy brief bright brisk broad
calm candid clear clever cosy crisp curly daring deft early eager easy fair fancy fine firm fleet fresh
gentle glad golden grand green happy hardy hazel humble jolly keen kind lively loyal lucid lucky mellow
merry mild misty modest neat nimble noble patient placid plain polite proud quick quiet rapid ready
rosy royal rustic sandy sharp shiny silent silver simple sleek smart snowy sober solid spry steady still
sturdy subtle sunny swift tidy tiny tender vivid warm wise witty young zesty`)

var animals = strings.Fields(`ant badger bat bear beaver bee beetle bison boar bream buzzard camel carp cat
cheetah civet cobra cod condor coot crab crane cricket crow curlew deer dingo dolphin dove duck eagle eel
egret elk emu falcon ferret finch fox frog gecko gibbon goat goose grouse gull hare hawk hedgehog heron
horse hound ibex ibis jackal jay kestrel kite koala lark lemur linnet llama lobster lynx magpie marmot
marten mole moose moth mouse newt okapi orca oriole osprey otter owl ox panda parrot pelican perch pike
plover pony puffin quail rabbit raven robin rook salmon seal shrew shrike snail snipe sparrow squid stag
stoat stork swan swift tapir teal tern thrush tiger toad trout turtle viper vole walrus wasp weasel whale
wolf wombat wren yak zebra`)
