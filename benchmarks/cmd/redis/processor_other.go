//go:build !unix

package main

import "errors"

func processorTime() (float64, error) {
	return 0, errors.New("this benchmark reads its processor time, which needs a Unix")
}
