// SPDX-License-Identifier: Apache-2.0

// Package coupled gives the kernel's MPTCP the coupled congestion controls of the published studies:
// LIA, OLIA and BALIA. The kernel itself has none. It takes congestion control as BPF programs
// (struct_ops, with CONFIG_DEBUG_INFO_BTF), which coupled.c has; coupled.o is compiled from it and is
// part of the program. They exist while a Kernel is open. Formulas are the same in Go, for tests and
// models.
package coupled
