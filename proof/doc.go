// Package proof holds the tests that need more than the library may require: other
// processes, miniredis, property testing, linearizability. The quick ones run with
// make test, the long ones with make proof.
package proof
