// SPDX-License-Identifier: Apache-2.0

package lte

// interleaverColumns is the column order of the sub-block interleaver of convolutional codes
// (36.212 table 5.1.4-2).
var interleaverColumns = [32]int{
	1, 17, 9, 25, 5, 21, 13, 29, 3, 19, 11, 27, 7, 23, 15, 31,
	0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30,
}

// interleaveOrder returns the sub-block interleaver (36.212 section 5.1.4.2.1) for n elements: the
// index of the input element at each output position.
func interleaveOrder(n int) []int {
	rows := (n + len(interleaverColumns) - 1) / len(interleaverColumns)
	empty := rows*len(interleaverColumns) - n
	order := make([]int, 0, n)
	for _, c := range interleaverColumns {
		for r := range rows {
			if e := r*len(interleaverColumns) + c - empty; e >= 0 {
				order = append(order, e)
			}
		}
	}
	return order
}

// rateMatchingOrder returns the rate matching of a code word of d bits (36.212 section 5.1.4.2.2):
// the index into the concatenated streams at each position of the circular buffer.
func rateMatchingOrder(d int) []int {
	one := interleaveOrder(d)
	order := make([]int, 0, codeStreams*d)
	for s := range codeStreams {
		for _, e := range one {
			order = append(order, s*d+e)
		}
	}
	return order
}
