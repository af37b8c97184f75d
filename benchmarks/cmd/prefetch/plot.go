package main

import (
	"encoding/csv"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/benchmarks/internal/plot"
)

// The columns of the simulation's results.
const (
	instancesColumn = iota
	demandColumn
	limitColumn // of the demand
	holdColumn  // ms
	chunkColumn
	callsColumn // a second
	earlyColumn
	unusedColumn
)

// draw reads the results of TestSimulation and draws those of the large fleet.
func draw(from, to string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return err
	}
	columns := []int{callsColumn, earlyColumn, unusedColumn}
	page := plot.Page{Title: "1,000 instances, 10 million requests a second on one rule, chunks of up to 1,000", Charts: []plot.Chart{
		{Title: "Redis calls", X: "Hold, ms", Y: "calls a second (10 million without)"},
		{Title: "Early refusals", X: "Hold, ms", Y: "% refused although the limit allows it", Linear: true},
		{Title: "Unused units", X: "Hold, ms", Y: "% of units given back unused", Linear: true},
	}}
	for _, row := range rows {
		values := make([]float64, len(row))
		for i := range row {
			if values[i], err = strconv.ParseFloat(row[i], 64); err != nil {
				return err
			}
		}
		if values[instancesColumn] != 1000 || values[chunkColumn] != 1000 {
			continue
		}
		name := "limit " + strings.TrimSuffix(row[limitColumn], "0") + " times the demand"
		for i, column := range columns {
			value := values[column]
			if page.Charts[i].Linear {
				value *= 100
			}
			lines := &page.Charts[i].Lines
			at := slices.IndexFunc(*lines, func(l plot.Line) bool { return l.Name == name })
			if at < 0 {
				at = len(*lines)
				*lines = append(*lines, plot.Line{Name: name})
			}
			(*lines)[at].Points = append((*lines)[at].Points, plot.Point{X: values[holdColumn], Y: value})
		}
	}
	return os.WriteFile(to, []byte(page.SVG()), 0o644)
}
