// Package house holds the rules of the house as tests, each with its reason:
// who may import whom, what the pure rooms may do, and how large files,
// functions and interfaces may grow. It stands outside the data path, reads
// the source of every other package, and is run by `make check`.
package house
