package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// facts is what the built-in rules are made from; it travels with a branch.
type facts struct {
	Home       string
	Config     string
	Executable string
	Protected  []string
	StartUp    []string
	Policies   []string // where links in place of the user's policy lead to
}

func factsOf(p Places) facts {
	f := facts{
		Home: resolved(p.Home), Config: resolved(p.config()), Executable: p.Executable,
		Protected: p.Protected, StartUp: p.StartUp,
	}
	if f.Config != "" {
		own := filepath.Join(f.Config, "try")
		for _, p := range []string{own, filepath.Join(own, "policy.toml")} {
			if _, err := os.Readlink(p); err == nil {
				f.Policies = append(f.Policies, resolved(p))
			}
		}
	}
	return f
}

// resolved follows symlinks as far as the path exists: changes have none in
// their paths.
func resolved(p string) string {
	if p == "" {
		return ""
	}
	// Nearly always there is nothing to follow, which one call tells.
	fd, err := unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err == nil {
		unix.Close(fd)
		return filepath.Clean(p)
	}
	if r, err := filepath.EvalSymlinks(p); err == nil {
		return r
	}
	if dir := filepath.Dir(p); dir != p {
		return filepath.Join(resolved(dir), filepath.Base(p))
	}
	return p
}

// condition is what a built-in rule asks beyond its globs.
type condition uint8

const (
	always condition = iota
	// notBareDir: making or touching the directory itself is no harm; ssh makes
	// ~/.ssh on first use.
	notBareDir
	// hook: git would run it, in a repository that was there before.
	hook
	// oldDir: the directory that holds it was there before. A clone may bring
	// what it likes.
	oldDir
	// sameIndex: a git index that says the same as the base's but for stat data.
	sameIndex
)

// row is one built-in rule.
type row struct {
	action Action
	only   condition
	why    string
	globs  []string
}

// builtInRules returns the rules of this version. The order counts: the first
// that matches decides. “Durability” widens the asks (H22).
func builtInRules(f facts) []*Rule {
	var rules []*Rule
	for _, r := range rows(f) {
		rule := &Rule{Action: r.action, Why: r.why, Source: BuiltIn, kinds: allKinds, only: r.only}
		if r.action >= Ask {
			rule.kinds = allKinds &^ touched // a time alone takes nothing over
			rule.Change = kindNames[:len(kindNames)-1]
		}
		for _, text := range r.globs {
			if f.Home == "" && strings.HasPrefix(text, "~/") {
				continue
			}
			g, err := compileGlob(text, scope{home: f.Home})
			if err != nil {
				continue // a place that no glob can name; TestBuiltInGlobs keeps ours out of here
			}
			rule.Paths = append(rule.Paths, text)
			rule.globs = append(rule.globs, g)
		}
		if len(rule.globs) > 0 {
			rules = append(rules, rule)
		}
	}
	return rules
}

func rows(f facts) []row {
	var stores, try, startUp []string
	for _, p := range f.Protected {
		stores = append(stores, quoteMeta(p)+"/**")
	}
	try = append(try, "/etc/try/**")
	if f.Config != "" {
		try = append(try, quoteMeta(filepath.Join(f.Config, "try"))+"/**")
	}
	for _, p := range f.Policies {
		try = append(try, quoteMeta(p)+"/**")
	}
	for _, p := range f.StartUp {
		startUp = append(startUp, quoteMeta(p))
	}
	var binary []string
	if f.Executable != "" {
		binary = []string{quoteMeta(f.Executable)}
	}
	return slices.Concat([]row{
		{Deny, always, "the store holds other branches and their journals", stores},
		{Deny, always, "try's own policy decides what may be committed", slices.Concat(try, []string{"~/.config/try/**"})},
		{Deny, always, "this is the try that is running", binary},
		{Deny, always, "try's shell integration runs in every shell", []string{
			"~/.config/fish/conf.d/try.fish", "~/.config/fish/completions/try.fish", "~/.config/fish/functions/try.fish",
			"~/.local/share/bash-completion/completions/try", "~/.local/share/zsh/site-functions/_try", "~/.zfunc/_try",
			"~/.local/share/try/**", "/etc/profile.d/try.sh", "/etc/fish/conf.d/try.fish",
			"/usr/{,local/}share/bash-completion/completions/try", "/usr/{,local/}share/zsh/{site,vendor-}functions/_try",
			"/usr/{,local/}share/fish/vendor_{conf,completions}.d/try.fish",
		}},
		{Yield, always, "ssh notes host keys by itself", []string{"~/.ssh/known_hosts*"}},
		{Ask, notBareDir, "decides who may log in, and what ssh runs", []string{"~/.ssh/**"}},
		{Ask, always, "every new shell runs it", slices.Concat([]string{
			"~/.profile", "~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.bash_logout", "~/.bash_aliases", "~/.bash_completion",
			"~/.zshrc", "~/.zshenv", "~/.zprofile", "~/.zlogin", "~/.zlogout", "~/.kshrc", "~/.mkshrc",
			"~/.cshrc", "~/.tcshrc", "~/.login", "~/.logout",
			"~/.xprofile", "~/.xsession", "~/.xsessionrc", "~/.xinitrc", "~/.xserverrc",
			"~/.config/zsh/.z{shrc,shenv,profile,login,logout}",
			"~/.config/fish/config.fish", "~/.config/nushell/{env,config,login}.nu",
		}, startUp)},
		{Ask, notBareDir, "every new shell runs it", []string{"~/.config/fish/conf.d/**", "~/.config/fish/functions/**"}},
		{Ask, hook, "git runs it", []string{"**/*.git/hooks/**", "**/.git/modules/**/hooks/**"}},
		{Ask, oldDir, "it decides what later runs may commit", []string{"**/.try.toml"}},
	}, yields)
}

// yields are the files that running programs share: what is lost where the
// base moved can be made again, or is in the base already.
var yields = []row{
	{Yield, sameIndex, "only stat data differ; git refreshes it", []string{
		"**/.git/index", "**/.git/worktrees/*/index", "**/.git/modules/**/index",
	}},
	{Yield, always, "shells and interpreters append to their histories at exit", []string{
		"~/.bash_history*", "~/.zsh_history*", "~/.zhistory", "~/.histfile", "~/.sh_history", "~/.history",
		"~/.local/state/bash/history", "~/.local/state/zsh/history", "~/.local/share/fish/fish_history", "~/.config/fish/fish_variables", "~/.zcompdump*", "~/.config/zsh/.zcompdump*",
		"~/.python_history", "~/.node_repl_history", "~/.irb_history", "~/.psql_history", "~/.mysql_history", "~/.sqlite_history", "~/.rediscli_history",
	}},
	{Yield, always, "viewers and editors note where they were", []string{
		"~/.lesshst", "~/.local/state/lesshst", "~/.viminfo*", "~/.wget-hsts",
		"~/.local/state/nvim/shada/**", "~/.local/state/nvim/swap/**", "~/.local/share/nvim/shada/**", "~/.local/share/nvim/swap/**", "~/.local/share/recently-used.xbel",
	}},
	{Yield, always, "editors' swap and lock files", []string{"**/.*.sw[a-p]", "**/.sw[a-p]", "**/.#*", "**/.~lock.*#"}},
	{Yield, always, "caches are made again", []string{
		"~/.cache/**", "~/.npm/_cacache/**", "~/.npm/_logs/**", "~/.npm/_update-notifier-last-checked",
		"**/node_modules/.cache/**", "**/node_modules/.vite/**", "**/__pycache__/**", "~/.config/go/telemetry/**",
	}},
}

// StartUpFiles returns the shell start-up files that the environment names at
// places of its own: of zsh in $ZDOTDIR, of bash and sh in $BASH_ENV and $ENV.
func StartUpFiles(getenv func(string) string) []string {
	var files []string
	if dir := getenv("ZDOTDIR"); filepath.IsAbs(dir) {
		for _, name := range []string{".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"} {
			files = append(files, filepath.Join(resolved(dir), name))
		}
	}
	for _, v := range []string{"BASH_ENV", "ENV"} {
		if file := getenv(v); filepath.IsAbs(file) {
			files = append(files, resolved(file))
		}
	}
	return files
}
