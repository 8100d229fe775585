package lte

// columns is the order of the columns in the sub-block interleaver of
// convolutional codes (36.212 table 5.1.4-2).
var columns = [32]int{
	1, 17, 9, 25, 5, 21, 13, 29, 3, 19, 11, 27, 7, 23, 15, 31,
	0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30,
}

// interleave is the sub-block interleaver (36.212 section 5.1.4.2.1) of n
// elements: the element at each place of its output.
func interleave(n int) []int {
	rows := (n + len(columns) - 1) / len(columns)
	empty := rows*len(columns) - n
	order := make([]int, 0, n)
	for _, c := range columns {
		for r := range rows {
			if e := r*len(columns) + c - empty; e >= 0 {
				order = append(order, e)
			}
		}
	}
	return order
}

// matching is the rate matching of a code word of d bits (36.212 section
// 5.1.4.2.2): the element of the streams, one after the other, that is sent at
// each place of the circular buffer.
func matching(d int) []int {
	one := interleave(d)
	order := make([]int, 0, streams*d)
	for s := range streams {
		for _, e := range one {
			order = append(order, s*d+e)
		}
	}
	return order
}
