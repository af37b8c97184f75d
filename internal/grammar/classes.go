package grammar

import (
	"errors"
	"fmt"
	"slices"
)

// maxClasses bounds the classes of a limiter: an exemption has a bit for each.
const maxClasses = 16

// CheckClasses returns what is wrong with the classes of a limiter.
func CheckClasses(classes []string) error {
	if classes == nil {
		return nil
	}
	var errs []error
	if !slices.Contains(classes, DefaultClass) || len(classes) > maxClasses {
		errs = append(errs, fmt.Errorf("limit: Classes %q: write at most %d, with %q for requests without a class", classes, maxClasses, DefaultClass))
	}
	for i, name := range classes {
		if !ValidName(name) || slices.Contains(classes[:i], name) {
			errs = append(errs, fmt.Errorf("limit: Classes[%d] %q: write different names of 1 to %d letters, digits, '.', '_' or '-'", i, name, MaxName))
		}
	}
	return errors.Join(errs...)
}
