// SPDX-License-Identifier: Apache-2.0

// Package app describes what smartphone apps do over a network: which bytes they request, in which
// order, and when users pause. It also computes what users notice of it, such as the time until a
// page is loaded. Package lab plays such scripts over real connections.
//
// The apps are those of Saha et al., "Multipath TCP in Smartphones: Impact on Performance, Energy,
// and CPU Utilization" (2017). The study names sizes of few of them; what it does not name is our
// assumption, and the comment of each app says which values are published.
//
// It is pure: a script depends on its arguments alone, so all schemes of a repetition play the same
// one.
package app
