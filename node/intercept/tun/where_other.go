// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tun

import "runtime"

const unsupportedWhere = "on " + runtime.GOOS
