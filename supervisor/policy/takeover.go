package policy

// takeovers are the asks: files that a program reads and then runs something,
// or lets somebody in, so that a mistake inside a branch goes on outside of it
// (H22). A row names the program, and TestTakeovers has it run what the row is
// about; a row stays only if that can be seen.
//
// What everyday runs write is not here, or under a condition that they do not
// meet (TestEverydayRunsAreNotAsked): who is asked daily stops to read. So a
// new program is free, a new launcher, a package's .pth file, all of a new
// repository, and of git's configurations what is not run.
var takeovers = []row{
	{tool: "ssh", only: notBareDir, why: "decides who may log in, and what ssh runs", globs: []string{"~/.ssh/**"}},

	// Shells.
	{tool: "sh", why: "every new login shell runs it", globs: []string{"~/.profile", "~/.login", "~/.logout"}},
	{tool: "bash", why: "every new shell runs it", globs: []string{
		"~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.bash_logout", "~/.bash_aliases", "~/.bash_completion",
	}},
	{tool: "zsh", why: "every new shell runs it", globs: []string{
		"~/.zshrc", "~/.zshenv", "~/.zprofile", "~/.zlogin", "~/.zlogout", "~/.config/zsh/.z{shrc,shenv,profile,login,logout}",
	}},
	{tool: "fish", only: notBareDir, why: "every new shell runs it", globs: []string{
		"~/.config/fish/config.fish", "~/.config/fish/conf.d/**", "~/.config/fish/functions/**",
	}},
	{tool: "ksh", why: "every new shell runs it", globs: []string{"~/.kshrc", "~/.mkshrc"}},
	{tool: "tcsh", why: "every new shell runs it", globs: []string{"~/.cshrc", "~/.tcshrc"}},
	{tool: "nu", only: notBareDir, why: "every new shell runs it", globs: []string{"~/.config/nushell/{env,config,login}.nu", "~/.config/nushell/autoload/**"}},
	{tool: "sh", only: existing, why: "start-up files source it", globs: []string{
		"~/.cargo/env*", "~/.local/bin/env*", "~/.deno/env*", "~/.ghcup/env", "~/.nvm/{nvm.sh,bash_completion}", "~/.sdkman/bin/sdkman-init.sh",
		"~/.asdf/asdf.*sh", "~/.fzf.{bash,zsh}", "~/.p10k.zsh", "~/.oh-my-zsh/**",
	}},
	{tool: "readline", why: "a key can type a command into every shell", globs: []string{"~/.inputrc"}},
	{tool: "tput", why: "every full-screen program sends what it says to the terminal", globs: []string{"~/.terminfo/**"}},
	{tool: "direnv", only: oldDir, why: "entering the directory runs it", globs: []string{"**/.envrc"}},
	{tool: "direnv", only: notBareDir, why: "decides which .envrc runs, and runs with each", globs: []string{"~/.config/direnv/**", "~/.local/share/direnv/allow/**", "~/.direnvrc"}},

	// git, and others that keep history.
	{tool: "git", only: hook, why: "git runs it", globs: []string{"**/*.git/hooks/**", "**/.git/modules/**/hooks/**"}},
	{tool: "git", only: gitKeys, why: "git runs what it says, at the next git status", globs: []string{
		"**/*.git/config", "**/*.git/config.worktree", "**/.git/worktrees/*/config.worktree", "**/.git/modules/**/config",
		"~/.gitconfig*", "~/.config/git/config*",
	}},
	{tool: "git", only: oldDir, why: "git reads another repository's configuration", globs: []string{"**/.git/commondir", "**/.git/worktrees/*/commondir"}},
	{tool: "hg", only: oldDir, why: "hg runs its hooks and extensions", globs: []string{"**/.hg/hgrc", "~/.hgrc", "~/.config/hg/hgrc"}},
	{tool: "svn", why: "svn runs the editors, diffs and tunnels that it names", globs: []string{"~/.subversion/{config,servers}"}},
	{tool: "jj", why: "jj runs its aliases, editors and signers", globs: []string{"~/.jjconfig.toml", "~/.config/jj/**"}},
	{tool: "gh", why: "its aliases and extensions run commands", globs: []string{"~/.config/gh/config.yml", "~/.local/share/gh/extensions/**"}},

	// The desktop and its services.
	{tool: "X", why: "every graphical login runs it", globs: []string{"~/.xprofile", "~/.xsession", "~/.xsessionrc", "~/.xinitrc", "~/.xserverrc"}},
	{tool: "pam_env", why: "sets the environment of every login", globs: []string{"~/.pam_environment"}},
	{tool: "environment.d", only: notBareDir, why: "sets the environment of every service and login", globs: []string{"~/.config/environment.d/**"}},
	{tool: "systemd", only: notBareDir, why: "the user's service manager runs it", globs: []string{
		"~/.config/systemd/**", "~/.local/share/systemd/user/**", "~/.config/user-tmpfiles.d/**",
	}},
	{tool: "dbus-daemon", only: notBareDir, why: "a message on the session bus runs it", globs: []string{"~/.local/share/dbus-1/services/**"}},
	{tool: "desktop session", only: notBareDir, why: "every graphical login runs it", globs: []string{
		"~/.config/{autostart,autostart-scripts}/**", "~/.config/plasma-workspace/{env,shutdown}/**",
		"~/.local/share/gnome-shell/extensions/**", "~/.local/share/plasma/plasmoids/**",
	}},
	{tool: "window manager", why: "every graphical login runs it", globs: []string{
		"~/.config/{i3,sway,hypr,openbox,awesome,bspwm,sxhkd,herbstluftwm,qtile,river,niri,labwc}/**", "~/.i3/**", "~/.xmonad/**",
	}},
	{tool: "desktop launcher", only: launcher, why: "a click on a program runs it", globs: []string{"~/.local/share/applications/**"}},
	{tool: "xdg-mime", why: "decides which program opens a file", globs: []string{"~/.config/mimeapps.list", "~/.mailcap", "~/.local/share/applications/{mimeapps,defaults}.list"}},
	{tool: "terminal emulator", why: "says which program a new window runs", globs: []string{
		"~/.config/{alacritty,kitty,foot,ghostty,wezterm}/**", "~/.wezterm.lua",
	}},
	{tool: "browser", only: notBareDir, why: "a web page can have it run", globs: []string{
		"~/.mozilla/native-messaging-hosts/**", "~/.config/{google-chrome,chromium,BraveSoftware/Brave-Browser}/NativeMessagingHosts/**",
	}},
	{tool: "mail delivery", why: "every mail that comes runs it", globs: []string{"~/.forward", "~/.procmailrc"}},

	// Multiplexers, pagers, editors.
	{tool: "tmux", why: "every new tmux runs it", globs: []string{"~/.tmux.conf", "~/.config/tmux/tmux.conf"}},
	{tool: "screen", why: "every new screen runs it", globs: []string{"~/.screenrc"}},
	{tool: "less", why: "less sets its environment by it, and so what it runs on each file", globs: []string{"~/.less", "~/.lesskey", "~/.config/lesskey"}},
	{tool: "vim", why: "vim runs it", globs: []string{
		"~/.vimrc", "~/.gvimrc", "~/.exrc", "~/.vim/{vimrc,gvimrc,filetype.vim,scripts.vim}",
		"~/.vim/{plugin,autoload,after,pack,ftplugin,ftdetect,syntax,indent,compiler,colors,keymap,lang}/**",
		"~/.config/vim/{vimrc,gvimrc}", "~/.config/vim/{plugin,autoload,after,pack,ftplugin,ftdetect}/**",
	}},
	{tool: "nvim", only: notBareDir, why: "nvim runs it", globs: []string{"~/.config/nvim/**", "~/.local/share/nvim/site/{plugin,after,ftplugin}/**"}},
	{tool: "emacs", why: "emacs runs it", globs: []string{
		"~/.emacs", "~/.emacs.el", "~/.emacs.d/{init,early-init,custom}.el", "~/.config/emacs/{init,early-init,custom}.el",
	}},
	{tool: "VS Code", why: "the editor starts the programs that it names", globs: []string{
		"~/.config/{Code,Code - OSS,VSCodium,Cursor}/User/{settings,tasks}.json", "~/.vscode{,-oss,-server}/extensions/*/package.json", "~/.cursor/extensions/*/package.json",
	}},

	// Languages and their package managers.
	{tool: "python3", why: "every Python runs it at its start", globs: []string{"~/.local/lib/python*/site-packages/{usercustomize,sitecustomize}.py"}},
	{tool: "python3", only: alone, why: "every Python runs its import lines at its start", globs: []string{"~/.local/lib/python*/site-packages/*.pth"}},
	{tool: "pdb", why: "the debugger runs it at its start", globs: []string{"~/.pdbrc"}},
	{tool: "pip", why: "says where packages come from", globs: []string{"~/.pip/pip.conf", "~/.config/pip/pip.conf", "~/.pypirc"}},
	{tool: "npm", why: "says where packages come from, and what runs their scripts", globs: []string{"~/.npmrc"}},
	{tool: "yarn", why: "says where packages come from, and which program yarn is", globs: []string{"~/.yarnrc", "~/.yarnrc.yml", "~/.bunfig.toml", "~/.config/pnpm/rc"}},
	{tool: "cargo", why: "says what cargo runs in place of the compiler", globs: []string{"~/.cargo/config.toml", "~/.cargo/config"}},
	{tool: "go", why: "says what go runs with the compiler", globs: []string{"~/.config/go/env"}},
	{tool: "mvn", why: "the mvn command runs it", globs: []string{"~/.mavenrc", "~/.m2/{settings,extensions}.xml"}},
	{tool: "gradle", only: notBareDir, why: "every build runs it", globs: []string{"~/.gradle/init.gradle*", "~/.gradle/init.d/**", "~/.gradle/gradle.properties"}},
	{tool: "irb", why: "the interpreter runs it at its start", globs: []string{"~/.irbrc", "~/.pryrc", "~/.gemrc", "~/.bundle/config"}},
	{tool: "R", why: "R runs it at its start", globs: []string{"~/.Rprofile", "~/.Renviron"}},
	{tool: "ghci", why: "the interpreter runs it at its start", globs: []string{"~/.ghci", "~/.ghc/ghci.conf"}},
	{tool: "gdb", why: "the debugger runs it at its start", globs: []string{"~/.gdbinit", "~/.gdbearlyinit", "~/.config/gdb/{gdbinit,gdbearlyinit}"}},
	{tool: "lldb", why: "the debugger runs it at its start", globs: []string{"~/.lldbinit"}},
	{tool: "sqlite3", why: "sqlite3 runs its commands at its start", globs: []string{"~/.sqliterc", "~/.config/sqlite3/sqliterc"}},
	{tool: "psql", why: "psql runs its commands at its start", globs: []string{"~/.psqlrc"}},
	{tool: "mysql", why: "says which pager, plug-ins and server the client uses", globs: []string{"~/.my.cnf"}},

	// Credentials, and programs that are asked for them.
	{tool: "gpg", why: "says which programs gpg and its agent run", globs: []string{"~/.gnupg/*.conf", "~/.gnupg/sshcontrol"}},
	{tool: "docker", only: notBareDir, why: "docker runs the credential helpers and plug-ins that it has", globs: []string{
		"~/.docker/config.json", "~/.docker/cli-plugins/**", "~/.docker/contexts/**",
	}},
	{tool: "kubectl", why: "kubectl runs the credential plug-ins that it names", globs: []string{"~/.kube/{config,kuberc}", "~/.kube/config.d/**"}},
	{tool: "aws", why: "the client runs the credential process and the aliases that it names", globs: []string{"~/.aws/{config,credentials}", "~/.aws/cli/alias"}},
	{tool: "wget", why: "says what wget runs and through whom it talks", globs: []string{"~/.wgetrc"}},
	{tool: "curl", why: "says through whom curl talks and whom it believes", globs: []string{"~/.curlrc", "~/.config/curlrc"}},
	{tool: "nix", why: "says where packages come from", globs: []string{"~/.config/nix/**"}},

	{tool: "try", only: oldDir, why: "it decides what later runs may commit", globs: []string{"**/.try.toml"}},
}
