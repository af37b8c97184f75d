package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	headless = regexp.MustCompile(`(?i)\b(who(ever|m)?|nobody|of which)\b`)
	whose    = regexp.MustCompile(`(?i)\bwhose\b`)
)

// printWords prints how often the words occur that stand for a subject without
// naming it, and the length of each document.
func printWords(files []file, verbose bool) {
	type count struct {
		path string
		n    int
	}
	var (
		unnamed, documents []count
		sum, sumWhose      int
	)
	for _, f := range files {
		if strings.HasPrefix(f.path, "tools/measure/") {
			continue // it names the words
		}
		n := len(headless.FindAllString(f.text, -1))
		sum += n
		sumWhose += len(whose.FindAllString(f.text, -1))
		if n > 0 {
			unnamed = append(unnamed, count{f.path, n})
		}
		if strings.HasSuffix(f.path, ".md") {
			documents = append(documents, count{f.path, len(strings.Fields(f.text))})
		}
	}
	slices.SortStableFunc(unnamed, func(a, b count) int { return cmp.Compare(b.n, a.n) })

	fmt.Printf("\n%d headless words (who, whoever, whom, nobody, of which), and %d times whose, outside of tests\n", sum, sumWhose)
	if verbose {
		for _, c := range unnamed {
			fmt.Printf("\t%5d  %s\n", c.n, c.path)
		}
	}
	fmt.Printf("\nWords of each document\n")
	for _, c := range documents {
		fmt.Printf("%5d  %s\n", c.n, c.path)
	}
}
