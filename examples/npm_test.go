package examples_test

import (
	"os/exec"
	"strings"
	"testing"
)

func TestNpmInstall(t *testing.T) {
	needs(t, "npm")
	u := copied(t, "npm-install")
	// HOME is not the caller's, so neither is ~/.npmrc: keep its registry.
	registry, err := exec.CommandContext(t.Context(), "npm", "config", "get", "registry").Output()
	if err != nil {
		t.Fatalf("npm config get registry: %v", err)
	}
	u.env = append(u.env, "npm_config_registry="+strings.TrimSpace(string(registry)), "npm_config_update_notifier=false",
		"NO_COLOR=1") // CI makes picocolors paint

	before := u.files()
	out := u.must("try", "--abort", "npm", "install")
	if !strings.Contains(out, "added 3 packages") {
		t.Errorf("npm did not install inside:\n%s", out)
	}
	if !strings.Contains(out, "node_modules") {
		t.Errorf("the summary does not name node_modules:\n%s", out)
	}
	u.same(before) // not even the cache in ~/.npm

	out = u.must("./run.sh")
	if want := "installed true 2d"; !strings.Contains(out, want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
	after := u.files()
	for _, name := range []string{"package-lock.json", "node_modules/ms/index.js", "node_modules/picocolors/picocolors.js", "node_modules/semver/index.js", "node_modules/.bin/semver"} {
		if _, ok := after["npm-install/"+name]; !ok {
			t.Errorf("%s: not there after the commit", name)
		}
	}
	if out := u.must("npm", "ls"); !strings.Contains(out, "semver@7.6.3") {
		t.Errorf("npm ls outside:\n%s", out)
	}
}
