// Command fileproxy writes a module proxy in the file system, for
// GOPROXY=file://DIR. It serves each version that is tagged in a git
// repository:
//
//	fileproxy REPOSITORY DIR
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fileproxy REPOSITORY DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "fileproxy:", err)
		os.Exit(1)
	}
}

// write adds every tagged version of the repository to the proxy in dir.
func write(repo, dir string) error {
	tags, err := git(repo, "tag", "--list")
	if err != nil {
		return err
	}
	for tag := range strings.FieldsSeq(tags) {
		if version := path.Base(tag); semver.IsValid(version) {
			subdir := strings.Trim(path.Dir(tag), ".") // the root module's tag has no folder
			if err := add(repo, dir, tag, subdir, version); err != nil {
				return fmt.Errorf("tag %s: %w", tag, err)
			}
		}
	}
	return nil
}

// add writes one version of the module in subdir, from the commit of its tag.
func add(repo, dir, tag, subdir, version string) error {
	mod, err := git(repo, "show", tag+":"+path.Join(subdir, "go.mod"))
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath([]byte(mod)), Version: version}
	if err := module.Check(m.Path, m.Version); err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	stamp, err := git(repo, "log", "-1", "--format=%cI", tag)
	if err != nil {
		return err
	}
	committed, err := time.Parse(time.RFC3339, strings.TrimSpace(stamp))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": committed.UTC()})
	if err != nil {
		return err
	}

	files := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{version + ".info": string(info), version + ".mod": mod} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	archive, err := os.Create(filepath.Join(files, version+".zip"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := zip.CreateFromVCS(archive, m, repo, tag, subdir); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	list, err := os.OpenFile(filepath.Join(files, "list"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer list.Close()
	if _, err := fmt.Fprintln(list, version); err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", m.Path, version)
	return list.Close()
}

// git returns what a git command prints.
func git(repo string, args ...string) (string, error) {
	command := exec.Command("git", append([]string{"-C", repo}, args...)...)
	out, err := command.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		return "", fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
