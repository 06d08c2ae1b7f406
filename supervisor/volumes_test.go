package supervisor_test

import (
	"testing"

	"try/fs/layer/layertest"
)

// TestVolumes runs what says most about a commit with home and project on each
// file system.
func TestVolumes(t *testing.T) {
	if onFuse() {
		t.Skip("what lies below is the commit's business, and tested on overlay")
	}
	t.Parallel()
	for kind := range layertest.Volumes {
		t.Run(kind, func(t *testing.T) {
			layertest.OnVolume(t, kind, "^(TestSameAsNative|TestLinksAsNative|TestTwoAtOnce|TestCrashOfRollBack)$")
		})
	}
}
