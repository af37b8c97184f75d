package grammar

import "strings"

// Nearest returns the word that a misspelled one may stand for: one that begins with it, or differs
// in at most two letters. It is "" if there is none.
func Nearest(misspelled string, words []string) (nearest string) {
	misspelled = strings.ToLower(misspelled)
	best := min(2, len(misspelled)/2) + 1
	for _, word := range words {
		distance := 1
		if len(misspelled) < 3 || !strings.HasPrefix(word, misspelled) {
			distance = edits(misspelled, word)
		}
		if distance < best {
			nearest, best = word, distance
		}
	}
	return nearest
}

// edits returns how many letters to insert, remove or replace: many if the lengths differ much.
func edits(a, b string) int {
	if len(a) > len(b)+2 {
		return len(a)
	}
	row := make([]int, len(b)+1) // from the part of a so far to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, to the left
		row[0]++
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
