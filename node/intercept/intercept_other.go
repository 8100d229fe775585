// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package intercept

import "net"

// ListenTransparent opens no listeners outside Linux, where connections are not redirected.
func ListenTransparent(uint16) ([]net.Listener, error) { return nil, nil }

// ServeTransparent does nothing outside Linux.
func (*Edge) ServeTransparent(net.Listener) error { return nil }

func enableSYNSaving(net.Listener) {}

// dscpOfSavedSYN returns 0 outside Linux.
func dscpOfSavedSYN(*net.TCPConn) uint8 { return 0 }

// LabelOf returns "" outside Linux, which has no control groups.
func LabelOf(string) string { return "" }

// RemoveLeftovers does nothing outside Linux.
func RemoveLeftovers() ([]string, error) { return nil, nil }
