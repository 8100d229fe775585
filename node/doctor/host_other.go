// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

import "time"

const linuxOnly = "it works on Linux only"

func missingForTUN() string { return linuxOnly }
func missingForRun() string { return linuxOnly }

func startCPUUsage() cpuUsage { return cpuUsage{at: time.Now()} }
