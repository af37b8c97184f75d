package lua

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxParts is the most parts that a policy has.
const MaxParts = 256

// Part returns the prefix to pass to the functions of this package for one part of each policy:
// part n, from 0, of the given number. The prefix itself has no braces. The slots of a Cluster are
// divided into as many even ranges, with one part in each, so that primaries with even ranges of
// slots have as many parts each. With random slots, two of three parts would usually be on one of
// three primaries.
func Part(prefix string, n, of int) string { return fmt.Sprintf("%s{%d/%d", prefix, n, of) }

// tagOf returns the tag of a part: that of the policy with the least number in the range.
func tagOf(policy, part string) string {
	first, second, _ := strings.Cut(part, "/")
	n, _ := strconv.Atoi(first)
	of, _ := strconv.Atoi(second)
	tag := policy + ":"
	begun := crc16(0, tag)
	for i := 1; ; i++ {
		number := strconv.Itoa(i)
		if slot := int(crc16(begun, number)) % slots; slot*of/slots == n {
			return tag + number
		}
	}
}

// slots is how many a Cluster has.
const slots = 16384

// crc16 goes on with the checksum by which a Cluster finds a slot: CRC-16/XMODEM.
func crc16(sum uint16, s string) uint16 {
	for i := range len(s) {
		sum ^= uint16(s[i]) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}
