package routetest

import "github.com/routelimit/limit"

// Refused returns the names of the rules that refuse a request.
func Refused(d limit.Decision) (names []string) {
	for rule := range d.Rules() {
		if rule.Refused {
			names = append(names, rule.Name)
		}
	}
	return names
}

// Marked returns the names of the rules that marked a request: those of the sets around d,
// which is from [limit.DecisionFrom], and then those of d.
func Marked(d limit.Decision) (names []string) {
	if outer, ok := d.Outer(); ok {
		names = Marked(outer)
	}
	for rule := range d.Rules() {
		if rule.Marked {
			names = append(names, rule.Name)
		}
	}
	return names
}
