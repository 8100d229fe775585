// SPDX-License-Identifier: Apache-2.0

//go:build race

package rig

func init() { Race = true }
