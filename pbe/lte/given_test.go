// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"encoding/csv"
	"os"
	"strconv"
	"testing"
)

const shared = "../../../shared/data/lte/"

// readRows reads a table of the test vectors, without its head. It skips the test if the vectors
// are missing.
func readRows(t testing.TB, name string) [][]string {
	t.Helper()
	f, err := os.Open(shared + name)
	if err != nil {
		t.Skip("not compared with the vectors, which are not here:", err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("compared with %s, %d rows", name, len(rows)-1)
	return rows[1:]
}

func parseNumber(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// parseSixths parses N_g as the vectors write it.
func parseSixths(s string) int {
	return map[string]int{"1/6": 1, "1/2": 3, "1": 6, "2": 12}[s]
}

func toBits(s string) []byte {
	b := []byte(s)
	for i := range b {
		b[i] -= '0'
	}
	return b
}

func fromBits(b []byte) string {
	s := make([]byte, len(b))
	for i := range b {
		s[i] = '0' + b[i]
	}
	return string(s)
}
