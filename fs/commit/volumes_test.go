package commit

import (
	"testing"

	"try/fs/layer/layertest"
)

// TestVolumes commits on each file system: what is one file stays one, what
// fails is undone, what drifted is seen.
func TestVolumes(t *testing.T) {
	for kind := range layertest.Volumes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			layertest.OnVolume(t, kind, "^(TestCommit|TestCommitByCopy|TestLinks|TestModel|TestDrift|TestWriters|TestOpenedBeforeAStep|TestSaveInTheMiddle|TestEachCallFails|TestKilledAtEachCall)$",
				"-every=29", "-rounds=8")
		})
	}
}
