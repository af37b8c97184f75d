// Package browser holds the tests of the pages in a real browser: Chromium without a
// window. They are skipped where none is installed.
package browser
