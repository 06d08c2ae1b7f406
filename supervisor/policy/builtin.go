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
	Path       []string // where the caller's commands are looked for
	Policies   []string // where links in place of the user's policy lead to
}

func factsOf(p Places) facts {
	f := facts{
		Home: resolved(p.Home), Config: resolved(p.config()), Executable: p.Executable,
		Protected: p.Protected, StartUp: p.StartUp,
	}
	for _, dir := range filepath.SplitList(p.Path) {
		if filepath.IsAbs(dir) { // what a command finds where it happens to stand is no rule's
			f.Path = append(f.Path, filepath.Clean(dir))
		}
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

// row is one built-in rule.
type row struct {
	action Action // none: ask
	tool   string // of an ask: what runs it
	only   condition
	why    string
	globs  []string
}

// builtInRules returns the rules of this version. The order counts: the first
// that matches decides.
func builtInRules(f facts) []*Rule {
	var rules []*Rule
	for _, r := range rows(f) {
		if r.action == 0 {
			r.action = Ask
		}
		rule := &Rule{Action: r.action, Why: r.why, Source: BuiltIn, kinds: allKinds, only: r.only}
		if r.action >= Ask {
			rule.kinds = allKinds &^ touched // a time alone takes nothing over
			rule.Change = kindNames[:len(kindNames)-1]
		}
		for _, text := range r.globs {
			if f.Home == "" && strings.HasPrefix(text, "~/") {
				continue
			}
			globs, err := compileGlobs(text, scope{home: f.Home})
			if err != nil {
				continue // a place that no glob can name; TestBuiltInGlobs keeps ours out of here
			}
			rule.Paths = append(rule.Paths, text)
			rule.globs = append(rule.globs, globs...)
		}
		rule.prepare()
		if len(rule.globs) > 0 {
			rules = append(rules, rule)
		}
	}
	return rules
}

func rows(f facts) []row {
	var stores, try, startUp []string
	for _, p := range f.Protected {
		stores = append(stores, QuoteMeta(p)+"/**")
	}
	try = append(try, "/etc/try/**")
	if f.Config != "" {
		try = append(try, QuoteMeta(filepath.Join(f.Config, "try"))+"/**")
	}
	for _, p := range f.Policies {
		try = append(try, QuoteMeta(p)+"/**")
	}
	for _, p := range f.StartUp {
		startUp = append(startUp, QuoteMeta(p))
	}
	var binary []string
	if f.Executable != "" {
		binary = []string{QuoteMeta(f.Executable)}
	}
	var commands []string
	for _, dir := range f.Path {
		commands = append(commands, strings.TrimSuffix(QuoteMeta(dir), "/")+"/*")
	}
	return slices.Concat([]row{
		{action: Deny, why: "the store holds other branches and their journals", globs: stores},
		{action: Deny, why: "try's own policy decides what may be committed", globs: slices.Concat(try, []string{"~/.config/try/**"})},
		{action: Deny, why: "this is the try that is running", globs: binary},
		{action: Deny, why: "try's shell integration runs in every shell", globs: []string{
			"~/.config/fish/conf.d/try.fish", "~/.config/fish/completions/try.fish", "~/.config/fish/functions/try.fish",
			"~/.local/share/bash-completion/completions/try", "~/.local/share/zsh/site-functions/_try", "~/.zfunc/_try",
			"~/.local/share/try/**", "/etc/profile.d/try.sh", "/etc/fish/conf.d/try.fish",
			"/usr/{,local/}share/bash-completion/completions/try", "/usr/{,local/}share/zsh/{site,vendor-}functions/_try",
			"/usr/{,local/}share/fish/vendor_{conf,completions}.d/try.fish",
		}},
		{action: Yield, why: "ssh notes host keys by itself", globs: []string{"~/.ssh/known_hosts*"}},
		{action: Ask, tool: "sh", why: "every new shell runs it", globs: startUp},
		{action: Ask, tool: "sh", only: shadows, why: "it would be run in place of another", globs: commands},
	}, takeovers, yields)
}

// yields are the files that running programs share: what is lost where the
// base moved can be made again, or is in the base already.
var yields = []row{
	{action: Yield, only: sameIndex, why: "only stat data differ; git refreshes it", globs: []string{
		"**/.git/index", "**/.git/worktrees/*/index", "**/.git/modules/**/index",
	}},
	{action: Yield, why: "shells and interpreters append to their histories at exit", globs: []string{
		"~/.bash_history*", "~/.zsh_history*", "~/.zhistory", "~/.histfile", "~/.sh_history", "~/.history",
		"~/.local/state/bash/history", "~/.local/state/zsh/history", "~/.local/share/fish/fish_history", "~/.config/fish/fish_variables", "~/.zcompdump*", "~/.config/zsh/.zcompdump*",
		"~/.python_history", "~/.node_repl_history", "~/.irb_history", "~/.psql_history", "~/.mysql_history", "~/.sqlite_history", "~/.rediscli_history",
	}},
	{action: Yield, why: "viewers and editors note where they were", globs: []string{
		"~/.lesshst", "~/.local/state/lesshst", "~/.viminfo*", "~/.wget-hsts",
		"~/.local/state/nvim/shada/**", "~/.local/state/nvim/swap/**", "~/.local/share/nvim/shada/**", "~/.local/share/nvim/swap/**", "~/.local/share/recently-used.xbel",
	}},
	{action: Yield, why: "editors' swap and lock files", globs: []string{"**/.*.sw[a-p]", "**/.sw[a-p]", "**/.#*", "**/.~lock.*#"}},
	{action: Yield, why: "caches are made again", globs: []string{
		"~/.cache/**", "~/.npm/_cacache/**", "~/.npm/_logs/**", "~/.npm/_update-notifier-last-checked",
		"**/node_modules/.cache/**", "**/node_modules/.vite/**", "**/__pycache__/**", "~/.config/go/telemetry/**",
	}},
}

// StartUpFiles returns the shell start-up files that the environment names at
// places of its own: of zsh in $ZDOTDIR, of bash and sh in $BASH_ENV and $ENV,
// of Python and readline.
func StartUpFiles(getenv func(string) string) []string {
	var files []string
	if dir := getenv("ZDOTDIR"); filepath.IsAbs(dir) {
		for _, name := range []string{".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"} {
			files = append(files, filepath.Join(resolved(dir), name))
		}
	}
	for _, v := range []string{"BASH_ENV", "ENV", "PYTHONSTARTUP", "INPUTRC"} {
		if file := getenv(v); filepath.IsAbs(file) {
			files = append(files, resolved(file))
		}
	}
	return files
}
