// Command measure counts what makes the library easy or hard to read: exported
// names, files and their length, and words that the style of the documents
// avoids. With -v it also prints the counts of every file:
//
//	measure [-v] REPOSITORY
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "print the counts of every file")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: measure [-v] REPOSITORY")
		os.Exit(2)
	}
	files, err := read(flag.Arg(0))
	if err == nil {
		err = measure(files, *verbose)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

// A file of the repository. Its path is relative and has slashes.
type file struct {
	path, text string
}

func (f file) lines() int { return strings.Count(f.text, "\n") }

// read returns the Go, Lua and Markdown files that are no tests, sorted by path.
func read(repo string) ([]file, error) {
	command := exec.Command("git", "-C", repo, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "*.go", "*.lua", "*.md")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	var files []file
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name == "" || strings.HasSuffix(name, "_test.go") || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(repo, filepath.FromSlash(name)))
		switch {
		case os.IsNotExist(err): // deleted, and not committed yet
		case err != nil:
			return nil, err
		default:
			files = append(files, file{name, string(text)})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files, nil
}

func measure(files []file, verbose bool) error {
	if err := printExported(files); err != nil {
		return err
	}
	printLengths(files, verbose)
	printAdapters(files)
	if err := printCharges(files, verbose); err != nil {
		return err
	}
	printWords(files, verbose)
	return nil
}

func printLengths(files []file, verbose bool) {
	var all, root []file
	for _, f := range files {
		if strings.HasSuffix(f.path, ".go") {
			all = append(all, f)
			if !strings.Contains(f.path, "/") {
				root = append(root, f)
			}
		}
	}
	fmt.Printf("\nGo files without tests\n")
	fmt.Printf("%5d  files in the root package\n", len(root))
	for _, group := range []struct {
		name  string
		files []file
	}{{"of the root package", root}, {"of the repository", all}} {
		if len(group.files) == 0 {
			continue
		}
		slices.SortStableFunc(group.files, func(a, b file) int { return a.lines() - b.lines() })
		largest := group.files[len(group.files)-1]
		fmt.Printf("%5d  lines in the median file %s\n", group.files[len(group.files)/2].lines(), group.name)
		fmt.Printf("%5d  lines in the largest file %s, %s\n", largest.lines(), group.name, largest.path)
	}
	if verbose {
		for _, f := range slices.Backward(all) {
			fmt.Printf("\t%5d  %s\n", f.lines(), f.path)
		}
	}
}

// printAdapters prints the lines of each adapter, whether or not it is there.
func printAdapters(files []file) {
	fmt.Printf("\nLines of each adapter\n")
	for _, adapter := range []string{"handler.go", "ginlimit", "echolimit", "echov5limit", "grpclimit", "connectlimit"} {
		lines, parts := 0, 0
		for _, f := range files {
			if f.path == adapter || path.Dir(f.path) == adapter && strings.HasSuffix(f.path, ".go") {
				lines += f.lines()
				parts++
			}
		}
		if parts == 0 {
			fmt.Printf("    -  %s\n", adapter)
			continue
		}
		fmt.Printf("%5d  %s\n", lines, adapter)
	}
}
