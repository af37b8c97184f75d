package core

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/routelimit/limit/internal/race"
)

// checkMulDiv compares with package math/big.
func checkMulDiv(t *testing.T, a, b, c int64) {
	t.Helper()
	want, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c), new(big.Int))
	if want.Cmp(big.NewInt(huge)) > 0 {
		want, rest = big.NewInt(huge), big.NewInt(0)
	}
	if got, remainder := MulDiv(a, b, c); got != want.Int64() || remainder != rest.Int64() {
		t.Errorf("%d·%d/%d is %d, remainder %d; want %v and %v", a, b, c, got, remainder, want, rest)
	}
}

// checkDiv compares with the definitions of rounding.
func checkDiv(t *testing.T, a, b int64) {
	t.Helper()
	exact := big.NewRat(a, b)
	floor, ceil := big.NewRat(FloorDiv(a, b), 1), big.NewRat(CeilDiv(a, b), 1)
	one := big.NewRat(1, 1)
	if floor.Cmp(exact) > 0 || new(big.Rat).Add(floor, one).Cmp(exact) <= 0 {
		t.Errorf("%d/%d rounded down is %v", a, b, floor)
	}
	if ceil.Cmp(exact) < 0 || new(big.Rat).Sub(ceil, one).Cmp(exact) >= 0 {
		t.Errorf("%d/%d rounded up is %v", a, b, ceil)
	}
}

var numbers = []int64{0, 1, 2, 3, 7, 999, 1_000, 1<<31 - 1, 1 << 31, 1<<32 + 1, 999_999_937, MaxLimit - 1, MaxLimit,
	MaxWindow, MaxFill, MaxCost, 1 << 53, huge - 1, huge, 1<<63 - 1}

func TestMulDiv(t *testing.T) {
	race.Skip(t)
	for _, a := range numbers {
		for _, b := range numbers {
			for _, c := range numbers[1:] {
				checkMulDiv(t, a, b, c)
			}
			if b > 0 && a <= huge && b <= huge {
				checkDiv(t, a, b)
				checkDiv(t, -a, b)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	draw := func() int64 { return random.Int64() >> random.IntN(63) }
	for range 20_000 {
		checkMulDiv(t, draw(), draw(), 1+draw()>>1)
		checkDiv(t, draw()>>1, 1+draw()>>2)
		checkDiv(t, -draw()>>1, 1+draw()>>2)
	}
}

func FuzzMulDiv(f *testing.F) {
	f.Add(int64(MaxFill), int64(MaxLimit), int64(MinWindow))
	f.Add(huge, huge, int64(3))
	f.Fuzz(func(t *testing.T, a, b, c int64) {
		if a < 0 || b < 0 || c < 1 {
			return // MulDiv is for numbers that are not negative
		}
		checkMulDiv(t, a, b, c)
		if c <= huge && a <= huge {
			checkDiv(t, a, c)
			checkDiv(t, -a, c)
		}
	})
}
