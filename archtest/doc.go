// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the rules of the tree as tests, each with its reason: the layers and their
// imports, what pure packages may use, and how large files, functions and interfaces may grow. It
// stands outside the data path and reads the source of every other package. `make check` runs it.
package archtest
