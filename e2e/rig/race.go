//go:build race

package rig

func init() { Race = true }
